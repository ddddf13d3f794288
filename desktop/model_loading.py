"""Which model a new chat gets, and loading another one without losing the former."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.bridge.settings_writer import SettingsWriter
from desktop.held_loads import HeldLoads
from desktop.model_picker import ModelChoice
from desktop.wording import as_sentence
from inference import EngineClient, EngineError, ModelConfig, ModelInfo, safe_config


class ModelLoading(QObject):
    """The file itself is checked by the engine, off this process; what it says is shown as it is."""

    loading_changed = Signal()
    failed = Signal(str)
    """One line for the user."""
    loaded = Signal(object)
    """ModelConfig"""

    def __init__(
        self,
        engine: EngineClient,
        settings: SettingsWriter,
        find_starter_model: Callable[[], Path | None],
        held: HeldLoads,
    ) -> None:
        super().__init__()
        self.held = held
        self._engine = engine
        self._settings = settings
        self._starter = find_starter_model()
        self.loading: Path | None = None

    @property
    def default_path(self) -> Path | None:
        """The model used last, else the starter model; None: there is none at all."""
        last = self._settings.settings.last_model_path
        if last is not None and (Path(last).is_file() or self._starter is None):
            return Path(last)
        return self._starter

    def choices(self) -> list[ModelChoice]:
        """For the picker: the starter model, then what was used before."""
        starter = [] if self._starter is None else [ModelChoice(self._starter, "starter model")]
        recent = map(Path, self._settings.settings.recent_model_paths)
        return starter + [ModelChoice(path) for path in recent if path != self._starter]

    def config(self, path: str) -> ModelConfig:
        settings = self._settings.settings
        config = ModelConfig(
            path,
            n_ctx=settings.n_ctx,
            n_gpu_layers=settings.n_gpu_layers,
            n_threads=settings.n_threads,
        )
        return (safe_config(config) or config) if path in settings.safe_models else config

    def loaded_model(self, path: Path | None) -> ModelInfo | None:
        """The model of this file, if it is the loaded one, with the settings that hold now."""
        info = self._engine.model_info
        return (
            info if info is not None and path is not None and info.config == self.config(str(path)) else None
        )

    async def load(self, path: Path) -> bool:
        """True: it is loaded and remembered as the last one used. False: `failed` has said why, or it is held; the
        former model is loaded again. Who calls this wants it, whatever its last load came to."""
        former, config = self._engine.model_info, self.config(str(path))
        self.held.release(config)
        self.loading = path
        self.loading_changed.emit()
        try:
            await self._engine.load_model(config)
        except EngineError as error:
            if not self.held.holds(config):
                self.failed.emit(as_sentence(str(error)))
            if former is not None:
                with contextlib.suppress(EngineError):
                    await self._engine.load_model(former.config)
            return False
        finally:
            if self.loading == path:
                self.loading = None
                self.loading_changed.emit()
        self._settings.change(lambda settings: settings.with_model(str(path)))
        self.loaded.emit(config)
        return True
