"""The lock before the title of a private chat."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize
from PySide6.QtWidgets import QLabel, QWidget

from desktop.icons import icon
from desktop.theme import theme_of

LOCK = "lock"
_SIZE = QSize(16, 16)


class PrivateMark(QLabel):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Private chat")
        self.setToolTip("Private chat: nothing the model reads here is kept on disk; the messages are")
        self._tint()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        lock = icon(LOCK, theme_of(self.palette()).muted)
        self.setPixmap(lock.pixmap(_SIZE, self.devicePixelRatioF()))
