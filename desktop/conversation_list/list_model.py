"""The chats of the list at the left, newest first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from desktop.conversations import Conversation, ConversationId
from desktop.wording import plain_tool_tip

Index = QModelIndex | QPersistentModelIndex
NEW_CHAT_TITLE = "New chat"


class ConversationRole(IntEnum):
    ID = Qt.ItemDataRole.UserRole + 1
    REPLYING = Qt.ItemDataRole.UserRole + 2
    """True while a reply of the chat is queued or running."""
    PRIVATE = Qt.ItemDataRole.UserRole + 3
    PINNED = Qt.ItemDataRole.UserRole + 4
    """True while what the engine keeps of the chat is never evicted."""


class ConversationListModel(QAbstractListModel):
    """Shows what it was given last; a rename goes out as a request and comes back with the next set."""

    rename_requested = Signal(object, str)
    """ConversationId, title"""

    def __init__(self) -> None:
        super().__init__()
        self._conversations: list[Conversation] = []
        self._replying: frozenset[ConversationId] = frozenset()

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """The selection outlives it: rows are moved, added and removed one by one."""
        wanted = {conversation.id for conversation in conversations}
        for row in range(len(self._conversations) - 1, -1, -1):
            if self._conversations[row].id not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self._conversations[row]
                self.endRemoveRows()
        for row, conversation in enumerate(conversations):
            self._put(row, conversation)

    def set_replying(self, replying: Collection[ConversationId]) -> None:
        changed = self._replying.symmetric_difference(replying)
        self._replying = frozenset(replying)
        for row, conversation in enumerate(self._conversations):
            if conversation.id in changed:
                self._tell_changed(row)

    def row_of(self, conversation_id: ConversationId) -> int | None:
        for row, conversation in enumerate(self._conversations):
            if conversation.id == conversation_id:
                return row
        return None

    def conversation(self, row: int) -> Conversation | None:
        return self._conversations[row] if 0 <= row < len(self._conversations) else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._conversations)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        conversation = self.conversation(index.row())
        if conversation is None:
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return conversation.title or NEW_CHAT_TITLE
            case Qt.ItemDataRole.ToolTipRole:
                kept = " (kept in the memory store)" if conversation.is_pinned else ""
                return plain_tool_tip((conversation.title or NEW_CHAT_TITLE) + kept)
            case Qt.ItemDataRole.EditRole:
                return conversation.title
            case Qt.ItemDataRole.AccessibleTextRole:
                private = ", private" if conversation.is_private else ""
                pinned = ", kept in the memory store" if conversation.is_pinned else ""
                replying = ", replying" if conversation.id in self._replying else ""
                return (conversation.title or NEW_CHAT_TITLE) + private + pinned + replying
            case ConversationRole.ID:
                return conversation.id
            case ConversationRole.REPLYING:
                return conversation.id in self._replying
            case ConversationRole.PRIVATE:
                return conversation.is_private
            case ConversationRole.PINNED:
                return conversation.is_pinned
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        conversation = self.conversation(index.row())
        title = " ".join(str(value).split())
        if conversation is None or role != Qt.ItemDataRole.EditRole or title in ("", conversation.title):
            return False
        self.rename_requested.emit(conversation.id, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        return super().flags(index) | Qt.ItemFlag.ItemIsEditable

    def _put(self, row: int, conversation: Conversation) -> None:
        old_row = self.row_of(conversation.id)
        if old_row is None:
            self.beginInsertRows(QModelIndex(), row, row)
            self._conversations.insert(row, conversation)
            self.endInsertRows()
            return
        if old_row != row:
            # Only ever upwards: every row above `row` is in place already.
            self.beginMoveRows(QModelIndex(), old_row, old_row, QModelIndex(), row)
            self._conversations.insert(row, self._conversations.pop(old_row))
            self.endMoveRows()
        if self._conversations[row] != conversation:
            self._conversations[row] = conversation
            self._tell_changed(row)

    def _tell_changed(self, row: int) -> None:
        index = self.index(row)
        self.dataChanged.emit(index, index)
