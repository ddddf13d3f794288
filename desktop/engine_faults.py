"""What the window says of an engine that crashed, hung or does not stop, and what it offers to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.model_loading import ModelLoading
from desktop.notice_bar import NoticeAction, NoticeBar
from inference import (
    NOBODYS_FAULT,
    EngineClient,
    EngineEvent,
    ModelConfig,
    ModelLoaded,
    StopUnanswered,
    WorkerExited,
    safe_config,
)

HELD, STOP, SAFE, CRASHED = "held load", "stop", "safe settings", "crashed"
"""Keys of notices."""


class EngineFaults(QObject):
    def __init__(
        self,
        engine: EngineClient,
        models: ModelLoading,
        settings: SettingsWriter,
        notices: NoticeBar,
        background: BackgroundTasks,
        ask_for_model: Callable[[], None],
    ) -> None:
        super().__init__()
        self._engine = engine
        self._models = models
        self._held = models.held
        self._last_loaded: ModelConfig | None = None
        self._settings = settings
        self._notices = notices
        self._background = background
        self._ask_for_model = ask_for_model
        self._held.wanted.connect(self.offer)
        models.loaded.connect(self._loaded)

    def take_event(self, event: EngineEvent) -> None:
        self._held.take(event)
        if isinstance(event, ModelLoaded):
            self._last_loaded = event.info.config
        elif isinstance(event, StopUnanswered):
            self._offer_to_end(event.is_loading)
        elif isinstance(event, WorkerExited):
            self._notices.dismiss(STOP)
            if event.loading is None and event.cause not in NOBODYS_FAULT:
                self._offer_less()

    def offer(self, config: ModelConfig) -> None:
        """The model is not loaded by itself; choose how to go on."""
        reason = self._held.reason(config)
        safe = safe_config(config)
        again = NoticeAction("Try as before", lambda: self._release(config))
        if safe is None:
            text = f"{reason} It is not tried again by itself. Try it once more, or open another model."
            actions = (again, NoticeAction("Open GGUF…", self._ask_for_model))
        else:
            text = (
                f"{reason} So it is not tried again by itself. Safe settings use the CPU only and a context of "
                f"{safe.n_ctx:,} tokens; your chats can be read meanwhile."
            )
            actions = (NoticeAction("Use safe settings", lambda: self._use_safe(config)), again)
        self._notices.show_notice(HELD, text, kind="error", action=actions[0], other_action=actions[1])

    def _offer_less(self) -> None:
        """The engine ended while it was at work: the next message starts it again as it was, unless one chooses less."""
        config = self._last_loaded
        safe = None if config is None else safe_config(config)
        if config is None or safe is None:
            return
        self._notices.show_notice(
            CRASHED,
            f"The engine stopped while {Path(config.path).name} was in use. The next message starts it again. If it "
            f"happens again: safe settings use the CPU only and a context of {safe.n_ctx:,} tokens.",
            kind="error",
            action=NoticeAction("Use safe settings", lambda: self._use_safe(config)),
        )

    def _use_safe(self, config: ModelConfig) -> None:
        self._notices.dismiss(CRASHED)
        self._settings.change(lambda settings: settings.with_safe_model(config.path, is_safe=True))
        self._release(config)

    def _use_full(self, path: str) -> None:
        self._settings.change(lambda settings: settings.with_safe_model(path, is_safe=False))
        self._background.start(self._models.load(Path(path)))

    def _release(self, config: ModelConfig) -> None:
        self._held.release(config, instead=self._models.config(config.path))
        self._background.start(self._models.load(Path(config.path)))

    def _loaded(self, config: ModelConfig) -> None:
        if not self._held.holds(config):
            self._notices.dismiss(HELD)
        if config.path not in self._settings.settings.safe_models:
            self._notices.dismiss(SAFE)
            return
        self._notices.show_notice(
            SAFE,
            f"{Path(config.path).name} runs with safe settings: CPU only, a context of {config.n_ctx:,} tokens.",
            action=NoticeAction("Use full settings", lambda: self._use_full(config.path)),
        )

    def _offer_to_end(self, is_loading: bool) -> None:
        why = "it is still loading the model" if is_loading else "it does not answer"
        self._notices.show_notice(
            STOP,
            f"The engine has not stopped yet: {why}. You can wait, or end it: that ends every reply that is being "
            "written, and what was written of them is kept. The next message starts the engine again.",
            kind="error",
            action=NoticeAction("End the engine", self._engine.end_worker),
        )
