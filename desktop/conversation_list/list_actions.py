"""What one does to the chats of the list: new, open, rename, pin, archive, move, delete, undo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Concatenate, ParamSpec

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn_queue import TurnQueue
from desktop.conversation_list.list_model import NEW_CHAT_TITLE, ConversationListModel
from desktop.conversation_list.list_undo import ListUndo, UndoStep
from desktop.conversation_list.list_view import ConversationListView
from desktop.conversations import (
    Conversation,
    ConversationId,
    ConversationStore,
    DatabaseUnusable,
    FolderId,
    NoSuchRecord,
    NotSaved,
    create_folder,
    delete_chats,
    delete_folder,
    move_to_folder,
    read_listing,
    remove_deleted_words,
    rename_folder,
    restore_folder,
    set_archived,
    set_on_top,
    undelete_chats,
)
from desktop.notice_bar import NoticeBar

P = ParamSpec("P")

UNDO_MS = 8000
DAY_CHECK_MS = 60_000
NEW_FOLDER_NAME = "New folder"


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
        self._undo = ListUndo(notices, background, UNDO_MS)
        self._undo.available.connect(self.undo_available)
        self._undo.not_saved.connect(self.not_saved)
        self._undo.forgotten.connect(lambda: background.start(self._purge_forgotten()))
        self._day = date.today()
        self._day_timer = QTimer(self, interval=DAY_CHECK_MS)
        self._day_timer.timeout.connect(self._reload_on_a_new_day)
        self._day_timer.start()
        view.opened.connect(lambda conversation_id: background.start(open_chat.open(conversation_id)))
        model.rename_requested.connect(lambda *renaming: background.start(self.rename(*renaming)))
        model.folder_rename_requested.connect(lambda *naming: background.start(self.rename_folder(*naming)))
        model.move_requested.connect(lambda *moving: background.start(self.move(*moving)))
        view.pin_requested.connect(lambda *pinning: background.start(self.set_pinned(*pinning)))
        open_chat.listing_changed.connect(lambda: background.start(self.reload()))
        open_chat.opened.connect(view.show_opened)
        turns.replying_changed.connect(lambda: model.set_replying(turns.replying()))

    async def reload(self) -> None:
        try:
            listing = await self._chats.run(read_listing)
        except DatabaseUnusable as error:
            self._notices.show_notice("list", str(error), kind="error")
            return
        self._day = date.today()
        self._model.set_listing(listing)
        self._model.set_replying(self._turns.replying())
        self._view.select_again(self._open_chat.id)
        self.reloaded.emit()

    def new_chat(self) -> None:
        self._background.start(self._open_chat.open(None))

    def new_private_chat(self) -> None:
        self._background.start(self._open_chat.open(None, is_private=True))

    async def rename(self, conversation_id: ConversationId, title: str) -> None:
        if await self._write(ConversationStore.rename, conversation_id, title):
            await self._open_chat.renamed(conversation_id)

    async def set_pinned(self, conversation_id: ConversationId, is_pinned: bool) -> None:
        if await self._write(ConversationStore.set_pinned, conversation_id, is_pinned):
            self.pins_changed.emit()
            await self.reload()

    async def set_on_top(self, ids: Sequence[ConversationId], is_on_top: bool) -> None:
        if await self._write(set_on_top, ids, is_on_top):
            await self.reload()

    async def archive(self, ids: Sequence[ConversationId], is_archived: bool) -> None:
        """Put away, or bring back. One undo for all of them."""
        words = self._words_for(ids)
        if not await self._write(set_archived, ids, is_archived):
            return
        await self._leave(ids) if is_archived else await self.reload()
        done = f"Archived {words}" if is_archived else f"Brought {words} back from the archive"
        self._undo.add(UndoStep(done, partial(self._then_reload, set_archived, ids, not is_archived)))

    async def move(self, ids: Sequence[ConversationId], folder_id: FolderId | None) -> None:
        """Into a folder, or out of any. One undo for all of them."""
        moved = [chat for chat in self._chats_of(ids) if chat.folder_id != folder_id]
        if not moved or not await self._write(move_to_folder, [chat.id for chat in moved], folder_id):
            return
        await self.reload()
        names = {folder.id: folder.name for folder in self._model.folders}
        where = "out of the folder" if folder_id is None else f"to “{names.get(folder_id, '')}”"
        words = self._words_for([chat.id for chat in moved])

        async def take_back() -> None:
            for former in {chat.folder_id for chat in moved}:
                ids_there = [chat.id for chat in moved if chat.folder_id == former]
                await self._chats.run(move_to_folder, ids_there, former)
            await self.reload()

        self._undo.add(UndoStep(f"Moved {words} {where}", take_back))

    async def create_folder(self, ids: Sequence[ConversationId] = ()) -> None:
        """With these chats in it; its name is then typed."""
        try:
            folder = await self._chats.run(create_folder, NEW_FOLDER_NAME, ids)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return
        await self.reload()
        self._view.rename_row(("folder", folder.id))

    async def rename_folder(self, folder_id: FolderId, name: str) -> None:
        if await self._write(rename_folder, folder_id, name):
            await self.reload()

    async def delete_folder(self, folder_id: FolderId) -> None:
        """The chats in it stay."""
        try:
            folder, chats = await self._chats.run(delete_folder, folder_id)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return
        except NoSuchRecord:
            return  # Del was pressed again before the list had changed
        await self.reload()
        self._view.select(self._open_chat.id)
        words = f"Deleted the folder “{folder.name}”" + ("; its chats are still here" if chats else "")
        self._undo.add(UndoStep(words, partial(self._then_reload, restore_folder, folder, chats)))

    def delete_current(self) -> None:
        """What is marked in the list, be it chats or a folder, else the open chat."""
        heading = self._view.current_heading
        chats = self._view.selected_conversations
        if not chats and heading is not None and heading.folder_id is not None:
            self._background.start(self.delete_folder(heading.folder_id))
        elif chats:
            self._background.start(self.delete(*(chat.id for chat in chats)))
        elif self._open_chat.id is not None:
            self._background.start(self.delete(self._open_chat.id))

    async def delete(self, *ids: ConversationId) -> None:
        """One undo for all of them."""
        try:
            found = [await self._chats.run(ConversationStore.conversation, each) for each in ids]
        except NoSuchRecord:
            return
        found = [chat for chat in found if chat.deleted_at is None]
        gone = [chat.id for chat in found]
        if not gone:
            return  # Del was pressed again before the list had changed
        if self._open_chat.id in gone:
            await self._open_chat.save_draft()
        for conversation_id in gone:
            self._turns.stop_all(conversation_id)
        if not await self._write(delete_chats, gone):
            return
        await self._leave(gone)
        self._undo.add(UndoStep(f"Deleted {_words(found)}", partial(self._undelete, gone)))

    def undo(self) -> None:
        """What was done last is taken back; again for what was done before it."""
        self._undo.take_back()

    def close(self) -> None:
        """What is deleted and could still be brought back is purged at the next start."""
        self._undo.close()
        self._day_timer.stop()

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

    async def _leave(self, gone: Sequence[ConversationId]) -> None:
        """Chats leave the list; if the open one is among them, the one that takes its place is opened."""
        before = [chat.id for chat in self._model.chats]
        await self.reload()
        if self._open_chat.id not in gone:
            self._view.select(self._open_chat.id)
            return
        left = [chat.id for chat in self._model.chats if chat.id not in gone]
        place = before.index(self._open_chat.id) if self._open_chat.id in before else 0
        following = [each for each in before[place:] if each in left] or left[-1:]
        await self._open_chat.open(following[0] if following else None)

    async def _undelete(self, ids: Sequence[ConversationId]) -> None:
        await self._chats.run(undelete_chats, ids)
        await self._open_chat.open(ids[0])
        await self.reload()

    async def _purge_forgotten(self) -> None:
        await self.purge_deleted()
        self.purged.emit()

    async def _then_reload(
        self, action: Callable[Concatenate[ConversationStore, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        await self._chats.run(action, *args, **kwargs)
        await self.reload()

    async def _write(
        self, action: Callable[Concatenate[ConversationStore, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> bool:
        """False: it was not saved, which is then said, or what it was for is gone."""
        try:
            await self._chats.run(action, *args, **kwargs)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return False
        except NoSuchRecord:
            return False
        return True

    def _chats_of(self, ids: Sequence[ConversationId]) -> list[Conversation]:
        return [chat for chat in self._model.all_chats if chat.id in ids]

    def _words_for(self, ids: Sequence[ConversationId]) -> str:
        return _words(self._chats_of(ids))

    def _reload_on_a_new_day(self) -> None:
        if date.today() != self._day:
            self._background.start(self.reload())


def _words(chats: Sequence[Conversation]) -> str:
    if len(chats) == 1:
        return f"“{chats[0].title or NEW_CHAT_TITLE}”"
    return f"{len(chats)} chats"
