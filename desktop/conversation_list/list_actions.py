"""What one does to the chats of the list: new, open, rename, pin, delete, undo."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn_queue import TurnQueue
from desktop.conversation_list.list_model import NEW_CHAT_TITLE, ConversationListModel
from desktop.conversation_list.list_view import ConversationListView
from desktop.conversations import (
    ConversationId,
    ConversationStore,
    DatabaseUnusable,
    NotSaved,
    remove_deleted_words,
)
from desktop.notice_bar import NoticeAction, NoticeBar

UNDO_MS = 8000
DELETED_NOTICE = "deleted"


class ConversationListActions(QObject):
    undo_available = Signal(bool)
    purged = Signal()
    """Deleted chats can no longer be brought back."""
    pins_changed = Signal()
    not_saved = Signal(str)
    reloaded = Signal()
    """The list shows what is on disk."""

    def __init__(
        self,
        model: ConversationListModel,
        view: ConversationListView,
        chats: ConversationTasks,
        turns: TurnQueue,
        open_chat: OpenChat,
        notices: NoticeBar,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._model = model
        self._view = view
        self._chats = chats
        self._turns = turns
        self._open_chat = open_chat
        self._notices = notices
        self._background = background
        self._undoable: list[ConversationId] = []
        self._undo_timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._undo_timer.timeout.connect(lambda: background.start(self._forget_deleted()))
        view.opened.connect(lambda conversation_id: background.start(open_chat.open(conversation_id)))
        model.rename_requested.connect(lambda *renaming: background.start(self.rename(*renaming)))
        view.pin_requested.connect(lambda *pinning: background.start(self.set_pinned(*pinning)))
        open_chat.listing_changed.connect(lambda: background.start(self.reload()))
        open_chat.opened.connect(view.select)
        turns.replying_changed.connect(lambda: model.set_replying(turns.replying()))

    async def reload(self) -> None:
        try:
            conversations = await self._chats.run(ConversationStore.conversations)
        except DatabaseUnusable as error:
            self._notices.show_notice("list", str(error), kind="error")
            return
        self._model.set_conversations(conversations)
        self._model.set_replying(self._turns.replying())
        self._view.select(self._open_chat.id)
        self.reloaded.emit()

    def new_chat(self) -> None:
        self._background.start(self._open_chat.open(None))

    def new_private_chat(self) -> None:
        self._background.start(self._open_chat.open(None, is_private=True))

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        try:
            await self._chats.run(ConversationStore.rename, conversation_id, title)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return
        await self._open_chat.renamed(conversation_id)

    async def set_pinned(self, conversation_id: ConversationId, is_pinned: bool) -> None:
        try:
            await self._chats.run(ConversationStore.set_pinned, conversation_id, is_pinned)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return
        self.pins_changed.emit()
        await self.reload()

    def delete_current(self) -> None:
        """The chat marked in the list, else the open one."""
        conversation_id = self._view.current_id or self._open_chat.id
        if conversation_id is not None:
            self._background.start(self.delete(conversation_id))

    async def delete(self, conversation_id: ConversationId) -> None:
        row = self._model.row_of(conversation_id)
        is_open = conversation_id == self._open_chat.id
        if is_open:
            await self._open_chat.save_draft()
        self._turns.stop_all(conversation_id)
        try:
            conversation = await self._chats.run(ConversationStore.conversation, conversation_id)
            await self._chats.run(ConversationStore.delete, conversation_id)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return
        if conversation_id not in self._undoable:  # Del was pressed again before the list had changed
            self._undoable.append(conversation_id)
        await self.reload()
        if is_open:
            neighbour = self._model.conversation(min(row or 0, self._model.rowCount() - 1))
            await self._open_chat.open(None if neighbour is None else neighbour.id)
        self._notices.show_notice(
            DELETED_NOTICE,
            f"Deleted “{conversation.title or NEW_CHAT_TITLE}”",
            action=NoticeAction("Undo (Ctrl+Z)", self.undo_delete),
        )
        self._undo_timer.start()
        self.undo_available.emit(True)

    def undo_delete(self) -> None:
        """The chat deleted last comes back; again for the one before it."""
        if self._undoable:
            self._background.start(self._undelete(self._undoable.pop()))

    def close(self) -> None:
        """What is deleted and could still be brought back is purged at the next start."""
        self._undo_timer.stop()

    async def purge_deleted(self) -> None:
        """Deleted chats are destroyed once they cannot be brought back: when the undo bar goes, and at start."""
        try:
            await self._chats.run(ConversationStore.purge_deleted, datetime.now(UTC))
        except NotSaved:
            return  # the next start does it
        self._background.start(self._remove_deleted_words())

    async def _remove_deleted_words(self) -> None:
        """Step by step, so that whatever else is asked of the database comes in between."""
        with contextlib.suppress(NotSaved, DatabaseUnusable):
            while await self._chats.run(remove_deleted_words):
                pass

    async def _undelete(self, conversation_id: ConversationId) -> None:
        try:
            await self._chats.run(ConversationStore.undelete, conversation_id)
        except NotSaved as error:
            self._undoable.append(conversation_id)
            self.not_saved.emit(str(error))
            return
        if not self._undoable:
            self._end_undo()
        await self._open_chat.open(conversation_id)
        await self.reload()

    async def _forget_deleted(self) -> None:
        self._undoable.clear()
        self._end_undo()
        await self.purge_deleted()
        self.purged.emit()

    def _end_undo(self) -> None:
        self._undo_timer.stop()
        self._notices.dismiss(DELETED_NOTICE)
        self.undo_available.emit(False)
