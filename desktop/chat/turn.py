"""One question-answer cycle: ask the engine, stream the reply, keep it on disk however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Protocol

from PySide6.QtCore import QObject, Signal

from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.delta_coalescer import DeltaCoalescer
from desktop.chat.chat_request import chat_request
from desktop.conversations import (
    ContextChoice,
    ConversationId,
    ConversationStore,
    DatabaseUnusable,
    KeptFit,
    MessageId,
    MessageStatus,
    NoSuchRecord,
    NotSaved,
    StoredMessage,
    chat_context,
    ids_to_keep,
    keep_fit,
    kept_fit,
    set_template_used,
)
from desktop.error_report import log
from inference import (
    ContextFit,
    EngineError,
    ErrorCode,
    FinishReason,
    GenerationRequest,
    ModelConfig,
    Phase,
    PhaseChanged,
    Reasoning,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    RequestId,
    SamplingParams,
    TokenDelta,
    TokenId,
)

SAVE_PAUSE_S = 0.7
"""From the first unsaved token to the save; with the write itself a reply is never more than a second behind."""
RETRY_PAUSE_S = 3.0
UNEXPECTED_ERROR = "Something went wrong inside Everwarm. Your message is kept; the log has the details."
DIED_ERROR = "The engine stopped before this reply was finished. What was written is kept."
QUIT_ERROR = "Everwarm was closed before this reply was finished. What was written is kept."


@dataclass(frozen=True, slots=True)
class Question:
    """What a turn answers: the message of user_id. It and the begun reply are on disk already.

    begun: the reply as it stood, where it goes on. may_drop: the oldest turns may be left out, whatever the chat says.
    """

    conversation_id: ConversationId
    user_id: MessageId
    content: str
    reply_id: MessageId
    model: ModelConfig
    sampling: SamplingParams
    default_template: str | None = None
    begun: StoredMessage | None = None
    may_drop: bool = False


class ReplySource(Protocol):
    """What a turn needs of the engine."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[RequestEvent, None]: ...
    def abort(self, request_id: RequestId) -> None: ...


class Turn(QObject):
    """Lives from the moment its reply is begun on disk until the reply's end is on disk too.

    answering is False from the reply's last event on, even while a full disk keeps its end from being saved.
    """

    changed = Signal()
    """phase, finished, failed or answering is new; text alone is told by `streamed`."""
    streamed = Signal(str)
    """Text to append; reasoning may be new too, and is whole in `reasoning`."""
    reported = Signal(object)
    """A RequestEvent for the gauges; TokenDeltas come joined."""
    not_saved = Signal(str)
    saved = Signal()

    def __init__(
        self,
        question: Question,
        chats: ConversationTasks,
        engine: ReplySource,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self.question = question
        begun = question.begun
        self.text = "" if begun is None else begun.content
        self.reasoning: Reasoning | None = None if begun is None else begun.reasoning
        self.choice = ContextChoice.ASK
        self.fit: KeptFit | None = None
        self.phase = Phase.QUEUED
        self.answering = True
        self.answered = asyncio.Event()
        self._kept = asyncio.Event()
        self.finished: RequestFinished | None = None
        self.failed: RequestFailed | None = None
        self._chats = chats
        self._engine = engine
        # None: they cannot be told before the end, since those of the reply's beginning are not known.
        self._token_ids: list[TokenId] | None = []
        if begun is not None:
            known = begun.token_ids or not begun.content
            self._token_ids = list(begun.token_ids or ()) if known else None
        self._thought_s = 0.0 if self.reasoning is None else self.reasoning.seconds
        self._request: GenerationRequest | None = None
        self._asked: list[StoredMessage] = []
        self._system_prompt = ""
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._saver: asyncio.Task[None] | None = None
        self._status = MessageStatus.STREAMING
        self._error: str | None = None
        self._coalescer = DeltaCoalescer(self._paint, parent=self)

    @property
    def refused_as_too_long(self) -> bool:
        """Nothing was read and nothing is stored, and the chat wants the question back in the composer."""
        return (
            self.failed is not None
            and self.failed.code is ErrorCode.PROMPT_TOO_LONG
            and self.choice is ContextChoice.STOP
            and self.question.begun is None
        )

    async def run(self) -> None:
        """Ends when the reply's end is on disk, or with CancelledError after interrupt()."""
        self._task = asyncio.current_task()
        if self._stopped:
            self._end(MessageStatus.CANCELLED)
        else:
            try:
                await self._ask()
            except EngineError as error:
                self.fail(error.code, str(error))
            except DatabaseUnusable as error:
                self.fail(ErrorCode.INTERNAL, str(error))
            except Exception:
                log.exception("turn failed")
                self.fail(ErrorCode.INTERNAL, UNEXPECTED_ERROR)
        if not self.refused_as_too_long:
            await self.keep()

    def stop(self) -> None:
        """The reply ends within one batch and keeps what was written; pressing twice changes nothing."""
        if self._stopped or not self.answering:
            return
        self._stopped = True
        if self._request is not None:
            self._engine.abort(self._request.request_id)

    def fail(self, code: ErrorCode, message: str) -> None:
        """End it for a reason the reader is told; what was streamed stays."""
        log.warning("reply failed: %s", code)
        self._coalescer.flush()
        request_id = RequestId("") if self._request is None else self._request.request_id
        self.failed = RequestFailed(request_id, code, message)
        died = code is ErrorCode.ENGINE_DIED
        self._end(MessageStatus.INTERRUPTED if died else MessageStatus.FAILED, message)

    async def keep(self) -> None:
        """Tries until the end is on disk: what was read must not be lost to a disk that was full for a while."""
        # Nobody tells when a disk has room again, so it is tried anew.
        while not await self._finish_reply():  # noqa: ASYNC110
            await asyncio.sleep(RETRY_PAUSE_S)
        self._kept.set()

    async def until_kept(self) -> None:
        """Its end is on disk then. Tried at once, since whoever asks has just written to the disk."""
        if not self._kept.is_set() and not await self._finish_reply():
            await self._kept.wait()

    async def interrupt(self) -> None:
        """The app quits: keep what is there, marked, in a single try."""
        if self._task is not None:
            self._task.cancel()
        if self.answering:
            self._end(MessageStatus.INTERRUPTED, QUIT_ERROR)
        await self._finish_reply()

    async def _ask(self) -> None:
        conversation_id = self.question.conversation_id
        conversation = await self._chats.run(ConversationStore.conversation, conversation_id)
        branch = await self._chats.run(ConversationStore.branch, conversation_id)
        context = await self._chats.run(chat_context, conversation_id)
        self.choice = context.choice
        # Messages sent meanwhile come after the question and are not part of it.
        asked = [message.id for message in branch].index(self.question.user_id) + 1
        if self._stopped:
            self._end(MessageStatus.CANCELLED)
            return
        self._asked = branch[:asked]
        self._system_prompt = conversation.settings.system_prompt
        self._request = chat_request(
            conversation,
            self._asked,
            self.question.model,
            sampling=self.question.sampling,
            default_template=self.question.default_template,
            context=context,
            may_drop=self.question.may_drop,
            begun=self.question.begun,
        )
        async for event in self._engine.generate(self._request):
            self._take(event)
        if self.answering:
            self.fail(ErrorCode.ENGINE_DIED, DIED_ERROR)

    def _take(self, event: RequestEvent) -> None:
        match event:
            case TokenDelta(token_ids=token_ids):
                if self._token_ids is not None:
                    self._token_ids += token_ids
                self._coalescer.add(event)
                self._save_soon()
                return
            case PhaseChanged(phase=phase):
                self._coalescer.flush()
                self.phase = phase
                self.changed.emit()
            case RequestFinished():
                self._coalescer.flush()
                self.finished = event
                self._take_whole(event)
                cancelled = event.finish_reason is FinishReason.CANCELLED
                self._end(MessageStatus.CANCELLED if cancelled else MessageStatus.COMPLETE)
            case RequestFailed(code=code, message=message):
                self._take_fit(event.fit)
                self.fail(code, message)
        self.reported.emit(event)

    def _take_whole(self, event: RequestFinished) -> None:
        """The reply as the engine has it, unless it was stopped before the engine looked at it."""
        if self.question.begun is not None and not event.counts.num_prompt_tokens:
            return
        self._take_fit(event.fit)
        self.text, self.reasoning = event.text, event.reasoning
        if event.reasoning is not None:
            self.reasoning = replace(event.reasoning, seconds=self._thought_s + event.reasoning.seconds)
        self._token_ids = list(event.token_ids)

    def _take_fit(self, fit: ContextFit | None) -> None:
        if fit is not None and self._request is not None:
            self.fit = kept_fit(fit, self._asked, len(self._request.messages or ()))

    @property
    def _num_generation_tokens(self) -> int | None:
        """Of the whole reply, while the other figures are those of its last run."""
        begun = self.question.begun
        if self.finished is None:
            return None
        before = 0 if begun is None else begun.num_generation_tokens or len(begun.token_ids or ())
        return before + self.finished.num_generation_tokens

    def _end(self, status: MessageStatus, error: str | None = None) -> None:
        self._coalescer.flush()
        # A save that is on its way runs to its end on the store's thread, before any later one.
        if self._saver is not None:
            self._saver.cancel()
        self._status, self._error = status, error
        self.answering = False
        self.answered.set()
        self.changed.emit()

    def _paint(self, delta: TokenDelta) -> None:
        self.text += delta.text
        if delta.reasoning or (self.reasoning is not None and self.reasoning.was_cut):
            before = "" if self.reasoning is None else self.reasoning.text
            # Until an answer begins, it would be cut if the reply ended now.
            self.reasoning = Reasoning(
                before + delta.reasoning,
                delta.num_reasoning_tokens,
                self._thought_s + delta.reasoning_s,
                not self.text,
            )
        if delta.text or delta.reasoning:
            self.streamed.emit(delta.text)
        self.reported.emit(delta)

    def _save_soon(self) -> None:
        if self._saver is None or self._saver.done():
            self._saver = asyncio.get_running_loop().create_task(self._save_after_pause())

    async def _save_after_pause(self) -> None:
        await asyncio.sleep(SAVE_PAUSE_S)
        self._coalescer.flush()
        try:
            await self._chats.run(
                ConversationStore.save_reply,
                self.question.reply_id,
                self.text,
                None if self._token_ids is None else tuple(self._token_ids),
                self.reasoning,
            )
        except NotSaved as error:
            self.not_saved.emit(str(error))
        else:
            self.saved.emit()

    async def _finish_reply(self) -> bool:
        finished = self.finished
        try:
            if self.fit is not None:
                await self._chats.run(keep_fit, self.question.reply_id, self.fit)
            if finished is not None and finished.template is not None:
                await self._chats.run(set_template_used, self.question.reply_id, finished.template)
            await self._chats.run(
                ConversationStore.finish_reply,
                self.question.reply_id,
                status=self._status,
                content=self.text,
                token_ids=None if self._token_ids is None else tuple(self._token_ids),
                finish_reason=None if finished is None else finished.finish_reason,
                seed=None if finished is None else finished.seed,
                counts=None if finished is None else finished.counts,
                timings=None if finished is None else finished.timings,
                num_generation_tokens=self._num_generation_tokens,
                decode_tokens_per_second=None if finished is None else finished.decode_tokens_per_second,
                bytes_read=None if finished is None else finished.bytes_read,
                miss=None if finished is None else finished.miss,
                reasoning=self.reasoning,
                error=self._error,
                asked_ids={}
                if finished is None
                else ids_to_keep(self._asked, finished.message_ids, self._system_prompt),
            )
        except NotSaved as error:
            self.not_saved.emit(str(error))
            return False
        except NoSuchRecord:
            # It ended before (quitting met the save on its way), or its chat has been purged.
            return True
        self.saved.emit()
        return True
