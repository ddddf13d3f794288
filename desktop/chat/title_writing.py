"""The model names a chat while nobody asks anything of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.composer import Composer
from desktop.chat.next_request import next_request
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.conversations import ConversationId, DatabaseUnusable, NotSaved
from desktop.conversations.chat_title import title_of_reply
from desktop.conversations.model_titles import set_model_title, wants_title
from desktop.error_report import log
from desktop.model_loading import ModelLoading
from inference import (
    EngineClient,
    EngineError,
    FinishReason,
    GenerationRequest,
    RequestFinished,
    SamplingParams,
)

TITLE_PAUSE_MS = 3000
"""Nothing was asked, typed or opened for so long."""
MAX_TITLE_TOKENS = 32
MAX_TRIES = 2
"""A model that has no name for a chat twice is not asked again before the next start."""
MOST_OF_CONTEXT = 0.5
"""A chat that fills more of the context than this share keeps its first words as a name."""
ASK_FOR_TITLE = (
    "Write a title of at most six words for this conversation, in its language. Answer only with the title."
)


class TitleWriting(QObject):
    """Only right after a reply of the open chat: its rows are in memory then, and only the question itself is read.

    Whatever else is asked for ends it within one batch; nothing of it is stored. A private chat is left alone.
    """

    pause_over = Signal()

    def __init__(
        self,
        open_chat: OpenChat,
        composer: Composer,
        chats: ConversationTasks,
        engine: EngineClient,
        turns: TurnQueue,
        models: ModelLoading,
        settings: SettingsWriter,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._open_chat = open_chat
        self._composer = composer
        self._chats = chats
        self._engine = engine
        self._turns = turns
        self._models = models
        self._settings = settings
        self._background = background
        self._answered: tuple[ConversationId, bool] | None = None
        """The chat whose reply was the last thing the engine did, and whether the model thought before it."""
        self._tries: Counter[ConversationId] = Counter()
        self._writing: asyncio.Task[None] | None = None
        self._timer = QTimer(self, singleShot=True, interval=TITLE_PAUSE_MS)
        self._timer.timeout.connect(self.pause_over)
        self.pause_over.connect(self.start)
        turns.ended.connect(self._turn_ended)
        turns.begun.connect(lambda _: self.forget())
        open_chat.opened.connect(self._opened)
        open_chat.settings_changed.connect(self.forget)
        models.loading_changed.connect(self.forget)
        composer.text_changed.connect(lambda _: self._typed())

    @property
    def is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    def start(self) -> None:
        if not self.is_writing and self._is_idle():
            self._writing = self._background.start(self._write())

    def forget(self) -> None:
        """Something else is asked of the engine: it comes first, and the chat is no longer what is in memory."""
        self._answered = None
        self._timer.stop()
        self._stop()

    def close(self) -> None:
        self.forget()

    def _stop(self) -> None:
        # Ending the stream aborts the request; cancelling does that before anything else is sent to the engine.
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        assert self._answered is not None
        chat_id, has_thought = self._answered
        try:
            if not await self._chats.run(wants_title, chat_id):
                self._answered = None
                return
            request = await self._request(has_thought)
            if request is None or not self._is_idle():
                return
            fit = await self._engine.count(request)
            if not self._is_idle() or fit.num_prompt_tokens > MOST_OF_CONTEXT * fit.n_ctx:
                return
            self._answered = None
            self._tries[chat_id] += 1
            title = await self._ask(request)
            log.info("title of a chat: %s", "none came of it" if title is None else "written")
            if title is not None and await self._chats.run(set_model_title, chat_id, title):
                await self._open_chat.renamed(chat_id)
        except (EngineError, DatabaseUnusable, NotSaved) as error:
            # The first words will do.
            log.info("no title: %s", error)

    async def _request(self, has_thought: bool) -> GenerationRequest | None:
        """The chat as its next question would be asked, so that what was read of it is used."""
        request = await next_request(self._open_chat, self._chats, self._models, draft=ASK_FOR_TITLE)
        if request is None or [message.role for message in request.messages or ()][-2:] == ["user", "user"]:
            return None
        options = dict(request.template_options)
        if has_thought:
            options["enable_thinking"] = False
        sampling = SamplingParams(temperature=0.3, max_tokens=MAX_TITLE_TOKENS)
        return replace(request, owner=None, is_aside=True, template_options=options, sampling=sampling)

    async def _ask(self, request: GenerationRequest) -> str | None:
        async with contextlib.aclosing(self._engine.generate(request)) as events:
            async for event in events:
                # A name that does not end is none.
                if isinstance(event, RequestFinished) and event.finish_reason is FinishReason.STOP:
                    return title_of_reply(event.text)
        return None

    def _is_idle(self) -> bool:
        return (
            self._settings.settings.write_titles
            and self._answered is not None
            and self._answered[0] == self._open_chat.id
            and not self._open_chat.is_private
            and not self._turns.replying()
            and not self._composer.text()
        )

    def _turn_ended(self, turn: Turn) -> None:
        chat_id = turn.question.conversation_id
        if self._tries[chat_id] >= MAX_TRIES or turn.finished is None:
            return
        if self._open_chat.branch.shows(turn) and not self._turns.replying():
            self._answered = (chat_id, turn.reasoning is not None)
            self._timer.start()

    def _opened(self, conversation_id: object) -> None:
        if self._answered is not None and conversation_id == self._answered[0]:
            return
        self.forget()

    def _typed(self) -> None:
        """What is typed is read ahead, and begins to be when there are words: until then the chat may have its name."""
        self._stop()
        if self._answered is not None:
            self._timer.start()
