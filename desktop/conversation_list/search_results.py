"""What a search found, in place of the list of chats: a row for each title and message."""

from __future__ import annotations

from datetime import date
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QWidget

from desktop.conversation_list.day_words import short_moment
from desktop.conversation_list.list_model import NEW_CHAT_TITLE, Index
from desktop.conversation_list.search_result_row import SearchResultDelegate
from desktop.conversations import SearchHit, SearchResults


class SearchRole(IntEnum):
    HIT = Qt.ItemDataRole.UserRole + 1


class SearchResultsModel(QAbstractListModel):
    def __init__(self) -> None:
        super().__init__()
        self._hits: tuple[SearchHit, ...] = ()

    def set_results(self, results: SearchResults) -> None:
        if results.hits != self._hits:
            self.beginResetModel()
            self._hits = results.hits
            self.endResetModel()

    def row_of(self, hit: SearchHit | None) -> int | None:
        """Of the same message, or title."""
        for row, other in enumerate(self._hits):
            if hit and (hit.conversation_id, hit.message_id) == (other.conversation_id, other.message_id):
                return row
        return None

    def hit(self, row: int) -> SearchHit | None:
        return self._hits[row] if 0 <= row < len(self._hits) else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._hits)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        hit = self.hit(index.row())
        if hit is None:
            return None
        if role == SearchRole.HIT:
            return hit
        if role == Qt.ItemDataRole.DisplayRole:
            return hit.title or NEW_CHAT_TITLE
        if role == Qt.ItemDataRole.AccessibleTextRole:
            when = short_moment(hit.when, date.today())
            if hit.message_id is None:
                return f"Chat {hit.title or NEW_CHAT_TITLE}, {when}"
            who = "You" if hit.role == "user" else "Reply"
            return f"{hit.title or NEW_CHAT_TITLE}, {when}. {who}: {hit.snippet.text}"
        return None


class SearchResultsView(QListView):
    chosen = Signal(object)
    """SearchHit: with the mouse or Enter."""
    left = Signal()
    """Escape."""
    went_up = Signal()
    """Up, from the first row."""

    def __init__(self, model: SearchResultsModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("search_results")
        self.setAccessibleName("Search results")
        self._results = model
        self.setModel(model)
        self.setItemDelegate(SearchResultDelegate(self))
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.clicked.connect(self._choose)
        self.activated.connect(self._choose)

    def show_results(self, results: SearchResults) -> None:
        """The row that is marked stays marked, if it is still there."""
        marked = self._results.hit(self.currentIndex().row())
        self._results.set_results(results)
        if (row := self._results.row_of(marked)) is not None:
            self.setCurrentIndex(self._results.index(row))

    def enter(self) -> None:
        """With the keyboard, from the field: the first row is marked if none is."""
        if self._results.rowCount():
            self.setFocus()
            if not self.currentIndex().isValid():
                self.setCurrentIndex(self._results.index(0))

    def choose_current(self) -> None:
        row = max(0, self.currentIndex().row())
        if self._results.rowCount():
            self.setCurrentIndex(self._results.index(row))
            self._choose(self.currentIndex())

    def _choose(self, index: QModelIndex) -> None:
        if (hit := self._results.hit(index.row())) is not None:
            self.chosen.emit(hit)

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Escape
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        elif event.key() == Qt.Key.Key_Up and self.currentIndex().row() <= 0:
            self.went_up.emit()
        else:
            super().keyPressEvent(event)
