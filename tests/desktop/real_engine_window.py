"""The whole window with a real worker, whose model may be made to end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from inference import EngineClient, EngineEvent, ModelLoadProgress, WorkerConfig
from tests.desktop.running_window import RunningWindow


class RealEngineWindow(RunningWindow):
    """crash: the signal that ends each worker as soon as it loads."""

    client: EngineClient

    def __init__(self, data_folder: Path, model: Path, crash: signal.Signals | None) -> None:
        super().__init__(data_folder, model)
        self._crash = crash

    def _connect_engine(self, on_event: Callable[[EngineEvent], None]) -> EngineClient:  # type: ignore[override]
        def tap(event: EngineEvent) -> None:
            if isinstance(event, ModelLoadProgress) and self._crash is not None:
                assert self.client.worker_pid is not None
                os.kill(self.client.worker_pid, self._crash)
            on_event(event)

        config = WorkerConfig(None, self.paths.logs / "engine.log", None, self.paths.load_marks)
        self.client = EngineClient(config, tap)
        return self.client
