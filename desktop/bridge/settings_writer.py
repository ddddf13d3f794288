"""The settings in force; each change goes to disk on another thread, the newest last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.settings import Settings, SettingsNotSaved, save_settings


class SettingsWriter(QObject):
    not_saved = Signal(str)

    def __init__(self, path: Path, settings: Settings, background: BackgroundTasks) -> None:
        super().__init__()
        self.settings = settings
        self._path = path
        self._background = background
        self._saved = settings
        self._writing = asyncio.Lock()

    def change(self, changed: Callable[[Settings], Settings]) -> None:
        """`change(lambda settings: replace(settings, theme="dark"))`"""
        self.settings = changed(self.settings)
        self._background.start(self.save())

    async def save(self) -> None:
        """Returns when what was set before the call is on disk, or `not_saved` has said why it is not."""
        async with self._writing:
            settings = self.settings
            if settings == self._saved:
                return
            try:
                await asyncio.to_thread(save_settings, self._path, settings)
            except SettingsNotSaved as error:
                self.not_saved.emit(str(error))
            else:
                self._saved = settings
