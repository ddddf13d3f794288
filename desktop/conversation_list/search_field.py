"""Where one types to search all chats."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QAction, QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from desktop.icons import icon
from desktop.theme import theme_of


class SearchField(QLineEdit):
    left = Signal()
    """Escape: no more searching."""
    entered_results = Signal()
    """Down, or Enter: to the results."""
    chosen = Signal()
    """Enter: the marked result, or the first one."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("search_field")
        self.setPlaceholderText("Search all chats")
        self.setAccessibleName("Search all chats")
        self.setToolTip('Search all chats (Ctrl+Shift+F). "Quoted words" stand together.')
        self.setClearButtonEnabled(True)
        self._glass = QAction(self)
        self.addAction(self._glass, QLineEdit.ActionPosition.LeadingPosition)
        self._tint()

    def event(self, event: QEvent) -> bool:
        # Escape is the window's key for stopping a reply, unless it is needed here.
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Escape
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Escape:
                self.left.emit()
            case Qt.Key.Key_Down:
                self.entered_results.emit()
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                self.chosen.emit()
            case _:
                super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        self._glass.setIcon(icon("search", theme_of(self.window().palette()).muted))
