"""The rows of the list at the left: chats, newest first, and the headings they stand under."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QMimeData, QModelIndex, QPersistentModelIndex, Qt, Signal

from desktop.conversation_list.list_sections import ChatRow, Heading, Row, list_rows
from desktop.conversations import Conversation, ConversationId, Folder, FolderId, Listing
from desktop.wording import plain_tool_tip

Index = QModelIndex | QPersistentModelIndex
NEW_CHAT_TITLE = "New chat"
CHATS_FORMAT = "application/x-everwarm-chats"
"""What is dragged: ids of chats, parted by spaces."""


class ConversationRole(IntEnum):
    ID = Qt.ItemDataRole.UserRole + 1
    REPLYING = Qt.ItemDataRole.UserRole + 2
    """True while a reply of the chat is queued or running."""
    PRIVATE = Qt.ItemDataRole.UserRole + 3
    PINNED = Qt.ItemDataRole.UserRole + 4
    """True while what the engine keeps of the chat is never evicted."""
    HEADING = Qt.ItemDataRole.UserRole + 5
    """None for a chat."""
    INDENTED = Qt.ItemDataRole.UserRole + 6


class ConversationListModel(QAbstractListModel):
    """Shows what it was given last; a change goes out as a request and comes back with the next listing."""

    rename_requested = Signal(object, str)
    """ConversationId, title"""
    folder_rename_requested = Signal(object, str)
    """FolderId, name"""
    move_requested = Signal(object, object)
    """list[ConversationId], FolderId | None: dropped there."""
    archive_requested = Signal(object, bool)
    """list[ConversationId], True: dropped there."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []
        self._listing = Listing()
        self._turned: set[object] = set()
        self._replying: frozenset[ConversationId] = frozenset()

    @property
    def folders(self) -> tuple[Folder, ...]:
        return self._listing.folders

    @property
    def chats(self) -> list[Conversation]:
        """In the order they are seen; without those that are folded away."""
        return [row.conversation for row in self._rows if isinstance(row, ChatRow)]

    @property
    def all_chats(self) -> tuple[Conversation, ...]:
        return self._listing.conversations

    def set_listing(self, listing: Listing) -> None:
        """The selection outlives it: rows are moved, added and removed one by one."""
        self._listing = listing
        self._show()

    def turn(self, heading: Heading) -> None:
        """Fold a heading's chats away, or show them."""
        self._turned ^= {heading.key}
        self._show()

    def unfold_for(self, conversation_id: ConversationId) -> None:
        """So that the chat is seen in the list."""
        chat = next((chat for chat in self._listing.conversations if chat.id == conversation_id), None)
        if chat is None or self.row_of(conversation_id) is not None:
            return
        for row in self._rows:
            if isinstance(row, Heading) and row.folds and not row.is_unfolded:
                is_its_own = row.kind == "archive" if chat.is_archived else row.folder_id == chat.folder_id
                if is_its_own:
                    self.turn(row)
                    return

    def set_replying(self, replying: Collection[ConversationId]) -> None:
        changed = self._replying.symmetric_difference(replying)
        self._replying = frozenset(replying)
        for number, row in enumerate(self._rows):
            if isinstance(row, ChatRow) and row.conversation.id in changed:
                self._tell_changed(number)

    def row_of(self, key: object) -> int | None:
        """Of a chat by its id, or of a heading by its key."""
        for number, row in enumerate(self._rows):
            if row.key == key:
                return number
        return None

    def conversation(self, row: int) -> Conversation | None:
        """None also for a heading."""
        found = self._row(row)
        return found.conversation if isinstance(found, ChatRow) else None

    def heading(self, row: int) -> Heading | None:
        found = self._row(row)
        return found if isinstance(found, Heading) else None

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._row(index.row())
        if row is None:
            return None
        if role == ConversationRole.HEADING:
            return row if isinstance(row, Heading) else None
        return self._heading_data(row, role) if isinstance(row, Heading) else self._chat_data(row, role)

    def _heading_data(self, heading: Heading, role: int) -> Any:
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole:
                return heading.text
            case Qt.ItemDataRole.ToolTipRole if heading.folds:
                return plain_tool_tip(heading.text)
            case Qt.ItemDataRole.AccessibleTextRole:
                if not heading.folds:
                    return heading.text
                kind = "Folder " if heading.kind == "folder" else ""
                state = "unfolded" if heading.is_unfolded else "folded"
                return f"{kind}{heading.text}, {heading.count} chats, {state}"
        return None

    def _chat_data(self, row: ChatRow, role: int) -> Any:
        conversation = row.conversation
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
            case ConversationRole.INDENTED:
                return row.is_indented
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row = self._row(index.row())
        text = " ".join(str(value).split())
        if row is None or role != Qt.ItemDataRole.EditRole or text in ("", index.data(role)):
            return False
        if isinstance(row, ChatRow):
            self.rename_requested.emit(row.conversation.id, text)
        elif row.folder_id is not None:
            self.folder_rename_requested.emit(row.folder_id, text)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        row = self._row(index.row())
        flag = Qt.ItemFlag
        if isinstance(row, Heading):
            if row.kind == "folder":
                return (
                    flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsEditable | flag.ItemIsDropEnabled
                )
            # Headings of days cannot be gone to; they only say what stands below.
            folds = flag.ItemIsEnabled | flag.ItemIsSelectable if row.folds else flag.NoItemFlags
            return folds | flag.ItemIsDropEnabled
        flags = super().flags(index) | flag.ItemIsEditable | flag.ItemIsDragEnabled
        return flags | flag.ItemIsDropEnabled

    # Dragging chats to a folder, or out of it.

    def supportedDropActions(self) -> Qt.DropAction:
        # Not a move, after which the view would take the rows out by itself.
        return Qt.DropAction.CopyAction

    def mimeTypes(self) -> list[str]:
        return [CHATS_FORMAT]

    def mimeData(self, indexes: Sequence[Index]) -> QMimeData:
        chats = [chat for index in indexes if (chat := self.conversation(index.row())) is not None]
        data = QMimeData()
        data.setData(CHATS_FORMAT, " ".join(str(chat.id) for chat in chats).encode())
        return data

    def dropMimeData(
        self, data: QMimeData, action: Qt.DropAction, row: int, column: int, parent: Index
    ) -> bool:
        target = self._row(parent.row()) if parent.isValid() else None
        if not data.hasFormat(CHATS_FORMAT) or target is None:
            return False
        chats = [ConversationId(int(text)) for text in bytes(data.data(CHATS_FORMAT).data()).split()]
        if isinstance(target, Heading) and target.kind == "archive":
            self.archive_requested.emit(chats, True)
            return True
        folder_id: FolderId | None
        folder_id = target.conversation.folder_id if isinstance(target, ChatRow) else target.folder_id
        self.move_requested.emit(chats, folder_id)
        return True

    def _row(self, row: int) -> Row | None:
        return self._rows[row] if 0 <= row < len(self._rows) else None

    def _show(self) -> None:
        rows = list_rows(self._listing, date.today(), self._turned)
        wanted = {row.key for row in rows}
        for number in range(len(self._rows) - 1, -1, -1):
            if self._rows[number].key not in wanted:
                self.beginRemoveRows(QModelIndex(), number, number)
                del self._rows[number]
                self.endRemoveRows()
        for number, row in enumerate(rows):
            self._put(number, row)

    def _put(self, number: int, row: Row) -> None:
        # Nearly always the row is where it was.
        is_here = number < len(self._rows) and self._rows[number].key == row.key
        old_number = number if is_here else self.row_of(row.key)
        if old_number is None:
            self.beginInsertRows(QModelIndex(), number, number)
            self._rows.insert(number, row)
            self.endInsertRows()
            return
        if old_number != number:
            # Only ever upwards: every row above is in place already.
            self.beginMoveRows(QModelIndex(), old_number, old_number, QModelIndex(), number)
            self._rows.insert(number, self._rows.pop(old_number))
            self.endMoveRows()
        if self._rows[number] != row:
            self._rows[number] = row
            self._tell_changed(number)

    def _tell_changed(self, row: int) -> None:
        index = self.index(row)
        self.dataChanged.emit(index, index)
