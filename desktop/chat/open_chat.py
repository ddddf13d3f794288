"""The chat that is open: what one does to it, and its draft."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.chat_panel import ChatPanel
from desktop.chat.sampling_layers import merged_sampling
from desktop.chat.shown_branch import ShownBranch
from desktop.chat.transcript_rows import CHOOSE_MODEL, CHOOSE_TEMPLATE, FIND_MODEL, RETRY, user_row
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.chat.waiting_note import waiting_note
from desktop.conversation_list.list_model import NEW_CHAT_TITLE
from desktop.conversations import (
    ChatContext,
    ChatSettings,
    Conversation,
    ConversationId,
    ConversationStore,
    DatabaseUnusable,
    NoSuchRecord,
    NotSaved,
    StoredMessage,
    chat_context,
    set_chat_settings,
)
from desktop.model_loading import ModelLoading

DRAFT_PAUSE_MS = 400
NO_MODEL_ERROR = "There is no model yet. Your message is kept; choose a model (GGUF file) and it is answered."


class OpenChat(QObject):
    """Without a conversation it is a new chat, which gets its row on disk with its first draft or message."""

    opened = Signal(object)
    """ConversationId | None"""
    listing_changed = Signal()
    """A chat is new, or its title or its place in the list changed."""
    find_model_requested = Signal()
    choose_model_requested = Signal()
    choose_template_requested = Signal()
    settings_changed = Signal()
    """What holds for the chat's next replies is another now, and on disk."""
    not_saved = Signal(str)
    saved = Signal()
    told = Signal(str)
    """One line for the notice bar."""

    def __init__(
        self,
        panel: ChatPanel,
        chats: ConversationTasks,
        turns: TurnQueue,
        models: ModelLoading,
        settings: SettingsWriter,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self.conversation: Conversation | None = None
        self.branch = ShownBranch(panel.transcript, turns)
        self._panel = panel
        self._composer = panel.composer
        self._chats = chats
        self._turns = turns
        self._models = models
        self._settings = settings
        self._background = background
        self._model_path: Path | None = None
        self._is_private = False
        self._saved_draft = ""
        self._unsaved_settings: ChatSettings | None = None
        # Opening, sending and saving a draft each take several steps on disk and must not interleave.
        self.changing = asyncio.Lock()
        self._sending = False
        # What one types and sends while the app starts waits for the chats to be there.
        self.ready = asyncio.Event()
        self._draft_timer = QTimer(self, singleShot=True, interval=DRAFT_PAUSE_MS)
        self._draft_timer.timeout.connect(lambda: background.start(self.save_draft()))
        self._composer.text_changed.connect(lambda _: self._draft_timer.start())
        self._composer.submitted.connect(self._submit)
        self._composer.stop_requested.connect(self.stop)
        panel.transcript.action_triggered.connect(self._act)
        panel.transcript.suggestion_chosen.connect(self._suggest)
        turns.ended.connect(self._turn_ended)
        turns.replying_changed.connect(self._show_busy)
        self.branch.turn_changed.connect(self._show_busy)
        models.loading_changed.connect(self._show_model)
        models.held.changed.connect(self._show_busy)

    @property
    def model_path(self) -> Path | None:
        return self._model_path

    @property
    def id(self) -> ConversationId | None:
        return None if self.conversation is None else self.conversation.id

    @property
    def settings(self) -> ChatSettings:
        """As they are set, be they on disk yet or not."""
        if self._unsaved_settings is not None:
            return self._unsaved_settings
        return ChatSettings() if self.conversation is None else self.conversation.settings

    @property
    def default_template(self) -> str | None:
        """Of the chat's model, where the chat itself chooses none."""
        return self._settings.settings.templates.get(str(self._model_path))

    @property
    def is_private(self) -> bool:
        return self._is_private

    async def open(
        self, conversation_id: ConversationId | None, *, keep_typed: bool = False, is_private: bool = False
    ) -> None:
        """keep_typed: what is in the composer follows the draft (typed while the app was starting).
        is_private: of a new chat; one that exists knows it itself."""
        if not keep_typed and not (await self.save_settings() and await self.save_draft()):
            # The text is nowhere but in the composer: this chat stays, and the list shows it again.
            self.opened.emit(self.id)
            return
        async with self.changing:
            self._unsaved_settings = None
            conversation: Conversation | None = None
            branch: list[StoredMessage] = []
            context = ChatContext()
            if conversation_id is not None:
                try:
                    conversation = await self._chats.run(ConversationStore.conversation, conversation_id)
                    branch = await self._chats.run(ConversationStore.branch, conversation_id)
                    context = await self._chats.run(chat_context, conversation_id)
                except NoSuchRecord:
                    conversation = None
                except DatabaseUnusable as error:
                    self.told.emit(str(error))
                    return
            self._is_private = is_private if conversation is None else conversation.is_private
            self._show(conversation, branch, context, keep_typed)
        self.ready.set()
        self.opened.emit(self.id)

    async def send(self, text: str) -> None:
        """On disk before anything else happens; until then the composer keeps it."""
        await self.ready.wait()
        async with self.changing:
            try:
                await self._save_settings()
                conversation = await self._existing_conversation()
                # Read anew: a message that was withdrawn or a reply that was begun has moved the head.
                conversation = await self._chats.run(ConversationStore.conversation, conversation.id)
                parent_id = conversation.head_id
                message = await self._chats.run(
                    ConversationStore.add_user_message, conversation.id, text, parent_id
                )
                self.branch.append(user_row(message))
                self._forget_sent(text)
                self._sending = False
                self.saved.emit()
                await self.answer(message)
            except NotSaved as error:
                self.not_saved.emit(str(error))
            finally:
                self._sending = False
            await self.refresh()

    async def retry(self, *, may_drop: bool = False) -> None:
        """Answer the last message of the branch again; the former try stays on disk."""
        if self.conversation is None or self.id in self._turns.replying():
            return
        async with self.changing:
            branch = await self._chats.run(ConversationStore.branch, self.conversation.id)
            former_try = branch.pop() if branch and branch[-1].role == "assistant" else None
            if not branch:
                return
            if former_try is not None:
                self.branch.replace_last(former_try.id, user_row(branch[-1]))
            try:
                await self._save_settings()
                await self.answer(branch[-1], may_drop=may_drop)
            except NotSaved as error:
                self.not_saved.emit(str(error))
                self.branch.update(replace(user_row(branch[-1]), actions=(RETRY,)))
            await self.refresh()

    async def set_model(self, path: Path) -> None:
        """For this chat from its next reply on. A question that waits for a model is answered now."""
        self._model_path = path
        self._show_model()
        self.settings_changed.emit()
        if self.conversation is None:
            return
        try:
            await self._chats.run(ConversationStore.set_model, self.conversation.id, str(path))
        except NotSaved as error:
            self.not_saved.emit(str(error))
        await self.refresh()
        if await self._stop_held() or CHOOSE_MODEL[0] in self.branch.offered_actions:
            await self.retry()

    def change_settings(self, settings: ChatSettings) -> None:
        """For this chat from its next reply on, and on disk at once."""
        self._unsaved_settings = settings
        self._background.start(self.save_settings())

    async def save_settings(self) -> bool:
        """False: what was set last could not be saved."""
        await self.ready.wait()
        async with self.changing:
            try:
                saved = await self._save_settings()
            except NotSaved as error:
                self.not_saved.emit(str(error))
                return False
        if saved:
            self.saved.emit()
        return True

    async def _save_settings(self) -> bool:
        """What was typed while one write ran goes with the next. Raises NotSaved; they are then tried again."""
        settings = self._unsaved_settings
        if settings is None:
            return False
        conversation = await self._existing_conversation()
        await self._chats.run(set_chat_settings, conversation.id, settings)
        self.conversation = replace(conversation, settings=settings)
        if self._unsaved_settings is settings:
            self._unsaved_settings = None
        self.settings_changed.emit()
        return True

    async def _stop_held(self) -> bool:
        """True: replies of this chat waited for a model that is held."""
        turns = [turn for turn in self._turns.turns_of(self.id) if turn.answering]
        if not any(self._models.held.holds(turn.question.model) for turn in turns):
            return False
        for turn in turns:
            turn.stop()
        for turn in turns:
            await turn.answered.wait()
        return True

    async def save_draft(self) -> bool:
        """False: what is in the composer could not be saved. A chat without a row gets one if there is something
        to keep."""
        self._draft_timer.stop()
        await self.ready.wait()
        async with self.changing:
            draft = self._composer.text()
            if draft == self._saved_draft:
                return True
            is_new = self.conversation is None
            try:
                conversation = await self._existing_conversation()
                await self._chats.run(ConversationStore.set_draft, conversation.id, draft)
            except NotSaved as error:
                self.not_saved.emit(str(error))
                return False
            self._saved_draft = draft
            self.saved.emit()
        if is_new:
            self.opened.emit(self.id)
        return True

    async def renamed(self, conversation_id: ConversationId) -> None:
        """A chat, perhaps this one, has a new title on disk."""
        if conversation_id == self.id:
            await self.refresh()
        else:
            self.listing_changed.emit()

    def close(self) -> None:
        self._draft_timer.stop()

    def stop(self) -> None:
        if self.conversation is not None:
            self._turns.stop(self.conversation.id)

    def _show(
        self,
        conversation: Conversation | None,
        branch: list[StoredMessage],
        context: ChatContext,
        keep_typed: bool,
    ) -> None:
        self.conversation = conversation
        chosen = conversation.model_path if conversation is not None else None
        self._model_path = Path(chosen) if chosen else self._models.default_path
        self.branch.show(self.id, branch, context, is_private=self._is_private)
        typed = self._composer.text() if keep_typed else ""
        self._saved_draft = conversation.draft if conversation is not None else ""
        self._composer.set_text(self._saved_draft + typed)
        self._panel.show_private(self._is_private)
        self._show_title()
        self._show_model()

    async def _existing_conversation(self) -> Conversation:
        if self.conversation is None:
            model = None if self._model_path is None else str(self._model_path)
            self.conversation = await self._chats.run(
                ConversationStore.create_conversation, model_path=model, is_private=self._is_private
            )
            self.branch.follow(self.conversation.id)
            self.listing_changed.emit()
        return self.conversation

    async def answer(
        self, message: StoredMessage, *, begun: StoredMessage | None = None, may_drop: bool = False
    ) -> None:
        if self._model_path is None:
            self.branch.update(replace(user_row(message), error=NO_MODEL_ERROR, actions=(CHOOSE_MODEL,)))
            return
        await self._turns.answer(
            message,
            self._models.config(str(self._model_path)),
            merged_sampling(self._settings.settings.sampling, self.settings.sampling),
            self.default_template,
            begun=begun,
            may_drop=may_drop,
        )

    async def refresh(self) -> None:
        """Title, head and place in the list as the store has them now."""
        conversation = self.conversation
        if conversation is None:
            return
        try:
            current = await self._chats.run(ConversationStore.conversation, conversation.id)
        except (NoSuchRecord, DatabaseUnusable):
            return
        if self.id == current.id:  # no other chat was opened meanwhile
            self.conversation = current
            self._show_title()
        self.listing_changed.emit()

    def _submit(self, text: str) -> None:
        # A second Enter before the first message is on disk would send it twice.
        if text.strip() and not self._sending:
            self._sending = True
            self._background.start(self.send(text))

    def _forget_sent(self, text: str) -> None:
        """The store has cleared the draft; what was typed while the message went to disk stays."""
        self._saved_draft = ""
        shown = self._composer.text()
        # A draft that was restored at start stands before what was typed and sent meanwhile.
        rest = shown.removeprefix(text) if shown.startswith(text) else shown.removesuffix(text)
        self._composer.set_text(rest)

    def _suggest(self, text: str) -> None:
        self._composer.set_text(text)
        self._composer.setFocus()

    def _act(self, _key: int, action: str) -> None:
        if action == RETRY[0]:
            self._background.start(self.retry())
        elif action == FIND_MODEL[0]:
            self.find_model_requested.emit()
        elif action == CHOOSE_MODEL[0]:
            self.choose_model_requested.emit()
        elif action == CHOOSE_TEMPLATE[0]:
            self.choose_template_requested.emit()

    def _turn_ended(self, turn: Turn) -> None:
        if self.branch.shows(turn):
            self._background.start(self.refresh())
        else:
            self.listing_changed.emit()

    def _show_title(self) -> None:
        title = self.conversation.title if self.conversation is not None else ""
        self._panel.show_title(title or NEW_CHAT_TITLE)

    def _show_model(self) -> None:
        loading = self._model_path is not None and self._models.loading == self._model_path
        self._panel.picker.show_model(self._model_path, loading=loading)
        self._show_busy()

    def _show_busy(self) -> None:
        answering = [turn for turn in self._turns.turns_of(self.id) if turn.answering]
        self._composer.set_busy(bool(answering))
        self._composer.set_note(waiting_note(answering, self._models))
