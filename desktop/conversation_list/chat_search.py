"""Searching all chats as one types: when the database is asked, what is shown, and what opening a hit does."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.message_marks import marks_in
from desktop.chat.open_chat import OpenChat
from desktop.chat.text_marks import TextMarks
from desktop.chat.transcript_view import TranscriptView
from desktop.chat.turn_queue import TurnQueue
from desktop.conversation_list.list_panel import ConversationListPanel
from desktop.conversations import (
    ConversationId,
    DatabaseUnusable,
    MessageId,
    NoSuchRecord,
    NotSaved,
    SearchHit,
    SearchResults,
    search_chats,
)
from desktop.conversations.message_branch import is_on_branch, show_branch_of
from desktop.conversations.search_query import SearchQuery

SEARCH_PAUSE_MS = 120
"""After the last key; whoever types on is not yet asking."""
TYPE_MORE = "Type a letter or a digit to search for."
CUT = "Only the first ones are shown; more words find fewer."


def nothing_found(typed: str) -> str:
    return f"No chat has “{typed}”. The beginning of a word is enough; try fewer words or another spelling."


class ChatSearch(QObject):
    """At most one search at a time: what was typed meanwhile is searched next, what was typed in between never."""

    told = Signal(str)
    """Why a hit cannot be shown, for the notice bar."""

    def __init__(
        self,
        list_panel: ConversationListPanel,
        transcript: TranscriptView,
        open_chat: OpenChat,
        chats: ConversationTasks,
        turns: TurnQueue,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._panel = list_panel
        self._transcript = transcript
        self._open_chat = open_chat
        self._chats = chats
        self._turns = turns
        self._background = background
        self._is_searching = False
        self._shown = ""
        self.num_searches = 0
        """How often the database was asked so far."""
        self._pause = QTimer(self, singleShot=True, interval=SEARCH_PAUSE_MS)
        self._pause.timeout.connect(self._ask)
        field, results = list_panel.search_field, list_panel.results
        field.textChanged.connect(self._typed)
        field.left.connect(self.leave)
        results.left.connect(self.leave)
        field.entered_results.connect(results.enter)
        results.went_up.connect(field.setFocus)
        field.chosen.connect(lambda: background.start(self._choose_first()))
        results.chosen.connect(lambda hit: background.start(self.open_hit(hit)))

    def start(self) -> None:
        self._panel.search_field.setFocus()
        self._panel.search_field.selectAll()

    def leave(self) -> None:
        """Back to the list of chats, and to the message box if one was searching with the keyboard."""
        self._panel.search_field.clear()
        self._transcript.show_marks(None)
        self._panel.left_search.emit()

    def close(self) -> None:
        self._pause.stop()

    async def search(self) -> None:
        """Until what is shown is the answer to what is typed."""
        self._pause.stop()
        if self._is_searching:
            return
        self._is_searching = True
        try:
            while (typed := self._typed_text()) != self._shown:
                await self._search(typed)
        finally:
            self._is_searching = False

    async def open_hit(self, hit: SearchHit) -> None:
        if hit.message_id is not None and not await self._make_shown(hit.conversation_id, hit.message_id):
            return
        await self._open_chat.open(hit.conversation_id)
        if hit.message_id is None or self._open_chat.id != hit.conversation_id:
            return
        pattern = SearchQuery.parse(self._typed_text()).pattern
        for message in self._transcript.shown_messages():
            if message.message.key == hit.message_id:
                places = marks_in(message, pattern)
                # Reasoning is unfolded only if the answer itself has none of the words.
                current = next((place for place in places if place.part == "text"), next(iter(places), None))
                self._transcript.show_marks(TextMarks(pattern, current))
                if current is not None:
                    self._transcript.go_to(current)
                else:
                    self._transcript.go_to_message(hit.message_id)

    async def _make_shown(self, conversation_id: ConversationId, message_id: MessageId) -> bool:
        """False: the message cannot be shown."""
        try:
            if await self._chats.run(is_on_branch, conversation_id, message_id):
                return True
            if conversation_id in self._turns.replying():
                self.told.emit(
                    "That message is in another branch of a chat that is being answered. "
                    "Open it when the reply has ended."
                )
                return False
            await self._chats.run(show_branch_of, conversation_id, message_id)
        except NoSuchRecord:
            self.told.emit("That message is no longer there.")
            return False
        except (DatabaseUnusable, NotSaved) as error:
            self.told.emit(str(error))
            return False
        return True

    async def _choose_first(self) -> None:
        """What was typed a moment ago is searched first."""
        await self.search()
        self._panel.results.choose_current()

    async def _search(self, typed: str) -> None:
        self.num_searches += 1
        try:
            results = await self._chats.run(search_chats, typed)
            words = "" if results.hits else nothing_found(typed)
            if not SearchQuery.parse(typed).terms:
                words = TYPE_MORE
        except DatabaseUnusable as error:
            results, words = SearchResults(()), str(error)
        if typed == self._typed_text():
            self._panel.show_results(results, words or (CUT if results.is_cut else ""))
        self._shown = typed

    def _typed(self, _text: str) -> None:
        if not self._typed_text():
            self._pause.stop()
            self._shown = ""
            self._panel.show_list()
        elif self._typed_text() != self._shown:
            self._pause.start()

    def _ask(self) -> None:
        self._background.start(self.search())

    def chats_changed(self) -> None:
        """What is listed may be renamed, deleted or answered while it is."""
        if self._shown:
            self._shown = ""
            self._pause.start()

    def _typed_text(self) -> str:
        return self._panel.search_field.text().strip()
