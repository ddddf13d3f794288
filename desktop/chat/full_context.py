"""What one can do when a chat is longer than its context, and about what the model sees of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.composer import Composer
from desktop.chat.memory_mark import PIN, UNPIN
from desktop.chat.open_chat import OpenChat
from desktop.chat.refusal_words import (
    CONTINUE,
    CONTINUE_DROPPING,
    DROP_OLDEST,
    EDIT,
    LARGER_CONTEXT,
    larger_context,
)
from desktop.chat.transcript_view import TranscriptView
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.conversations import (
    ContextChoice,
    ConversationStore,
    DatabaseUnusable,
    MessageId,
    NoSuchRecord,
    NotSaved,
    chat_context,
    set_context_choice,
    set_message_pinned,
)
from desktop.model_loading import ModelLoading
from desktop.wording import as_sentence

SAFE_SETTINGS_NOTE = (
    "This model runs with safe settings, which keep its context small. Choose its full settings first; "
    "your message is kept."
)


class FullContext(QObject):
    """Buttons under the last message, pins, and the chat's choice. Of a new chat the choice is kept until it has a row."""

    changed = Signal()
    """The chat's choice or pins."""
    not_saved = Signal(str)

    def __init__(
        self,
        open_chat: OpenChat,
        transcript: TranscriptView,
        composer: Composer,
        chats: ConversationTasks,
        turns: TurnQueue,
        models: ModelLoading,
        settings: SettingsWriter,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._open_chat = open_chat
        self._composer = composer
        self._chats = chats
        self._turns = turns
        self._models = models
        self._settings = settings
        self._background = background
        self._choice_of_new_chat: ContextChoice | None = None
        transcript.action_triggered.connect(self._act)
        turns.withdrawn.connect(self._turn_withdrawn)
        open_chat.opened.connect(self._opened)
        open_chat.listing_changed.connect(self._keep_choice_of_new_chat)

    @property
    def choice(self) -> ContextChoice:
        return self._choice_of_new_chat or self._open_chat.branch.context.choice

    def choose(self, choice: ContextChoice) -> None:
        """For this chat, from its next reply on."""
        self._choice_of_new_chat = choice
        self.changed.emit()
        self._keep_choice_of_new_chat()

    async def go_on(self, *, may_drop: bool = False) -> None:
        """The last reply goes on where it ended; may_drop: the oldest turns may be left out for it."""
        open_chat = self._open_chat
        if open_chat.conversation is None or open_chat.id in self._turns.replying():
            return
        await open_chat.save_settings()
        async with open_chat.changing:
            branch = await self._chats.run(ConversationStore.branch, open_chat.conversation.id)
            if len(branch) < 2 or branch[-1].role != "assistant":
                return
            try:
                await open_chat.answer(branch[-2], begun=branch[-1], may_drop=may_drop)
            except NotSaved as error:
                self.not_saved.emit(str(error))

    async def edit(self) -> None:
        """The last message, which was refused, is text in the composer again."""
        open_chat = self._open_chat
        if open_chat.conversation is None:
            return
        async with open_chat.changing:
            branch = await self._chats.run(ConversationStore.branch, open_chat.conversation.id)
            if len(branch) < 2 or branch[-2].role != "user":
                return
            question, reply = branch[-2:]
            try:
                await self._chats.run(ConversationStore.withdraw, question.id)
            except NotSaved as error:
                self.not_saved.emit(str(error))
                return
            except ValueError:  # it was answered meanwhile
                return
            self._take_back(reply.id, question.id, question.content)

    async def enlarge(self, key: MessageId) -> None:
        """Load the model with a larger context, and answer. What was set before is set again if that fails."""
        fit = self._open_chat.branch.context.fits.get(key)
        path = self._open_chat.model_path
        n_ctx = None if fit is None else larger_context(fit)
        if n_ctx is None or path is None:
            return
        former = self._settings.settings.n_ctx
        self._settings.change(lambda settings: replace(settings, n_ctx=n_ctx))
        is_held_small = self._models.config(str(path)).n_ctx != n_ctx
        if is_held_small:
            self._open_chat.told.emit(SAFE_SETTINGS_NOTE)
        if not is_held_small and await self._models.load(path):
            await self._answer_again(may_drop=False)
        else:
            self._settings.change(lambda settings: replace(settings, n_ctx=former))

    async def pin(self, key: MessageId, is_pinned: bool) -> None:
        await self._change(lambda store: set_message_pinned(store, key, is_pinned))

    def _act(self, key: int, action: str) -> None:
        if action in (DROP_OLDEST, CONTINUE_DROPPING[0]):
            self._background.start(self._answer_again(may_drop=True))
        elif action == CONTINUE[0]:
            self._background.start(self.go_on())
        elif action == LARGER_CONTEXT:
            self._background.start(self.enlarge(MessageId(key)))
        elif action == EDIT[0]:
            self._background.start(self.edit())
        elif action in (PIN[0], UNPIN[0]):
            self._background.start(self.pin(MessageId(key), action == PIN[0]))

    async def _answer_again(self, *, may_drop: bool) -> None:
        """A reply that was begun goes on, also one that was refused when it was to go on."""
        if self._open_chat.branch.last_has_text:
            await self.go_on(may_drop=may_drop)
        else:
            await self._open_chat.retry(may_drop=may_drop)

    def _turn_withdrawn(self, turn: Turn, why: str) -> None:
        self._open_chat.told.emit(f"{as_sentence(why)} Your message is back in the box below.")
        if self._open_chat.branch.shows(turn):
            self._take_back(turn.question.reply_id, turn.question.user_id, turn.question.content)
        else:
            self._open_chat.listing_changed.emit()

    def _take_back(self, reply_id: MessageId, user_id: MessageId, content: str) -> None:
        """A message that was withdrawn stands before what was typed since, as the store has it in the draft."""
        self._open_chat.branch.withdraw(reply_id, user_id)
        typed = self._composer.text()
        self._composer.set_text("\n\n".join(text for text in (content, typed) if text))
        self._background.start(self._open_chat.refresh())

    def _opened(self, _conversation_id: object) -> None:
        self._choice_of_new_chat = None
        self.changed.emit()

    def _keep_choice_of_new_chat(self) -> None:
        if self._choice_of_new_chat is not None and self._open_chat.id is not None:
            self._background.start(self._keep_choice(self._choice_of_new_chat))

    async def _keep_choice(self, choice: ContextChoice) -> None:
        conversation_id = self._open_chat.id
        if conversation_id is None:
            return
        is_kept = await self._change(lambda store: set_context_choice(store, conversation_id, choice))
        if is_kept and self._choice_of_new_chat is choice:
            self._choice_of_new_chat = None

    async def _change(self, change: Callable[[ConversationStore], None]) -> bool:
        """On disk, and then shown. False: it could not be saved, or what it is about is gone."""
        try:
            await self._chats.run(change)
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return False
        except NoSuchRecord:
            return False
        await self._read_context()
        return True

    async def _read_context(self) -> None:
        conversation_id = self._open_chat.id
        if conversation_id is None:
            return
        try:
            context = await self._chats.run(chat_context, conversation_id)
        except DatabaseUnusable:
            return
        if self._open_chat.id == conversation_id:
            self._open_chat.branch.show_context(context)
            self.changed.emit()
