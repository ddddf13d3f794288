"""Every reply that is queued or being written, in whichever chat; a chat's own turns run one after another."""

from __future__ import annotations

import asyncio
from functools import partial

from PySide6.QtCore import QObject, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.turn import Question, ReplySource, Turn
from desktop.conversations import (
    ConversationId,
    ConversationStore,
    NotSaved,
    StoredMessage,
    resume_reply,
)
from desktop.error_report import log
from desktop.reply_log import ReplyLog
from inference import ErrorCode, ModelConfig, SamplingParams


class TurnQueue(QObject):
    """A message sent while its chat is being answered is on disk at once and answered next.

    Turns of different chats are all given to the engine, which decides what runs when.
    """

    begun = Signal(object)
    """Turn"""
    ended = Signal(object)
    """Turn: its reply has ended, well or not, and the next of the chat may run."""
    withdrawn = Signal(object, str)
    """Turn, why: its question is no longer a message but in front of the chat's draft."""
    replying_changed = Signal()
    not_saved = Signal(str)
    saved = Signal()

    def __init__(
        self,
        chats: ConversationTasks,
        engine: ReplySource,
        background: BackgroundTasks,
        reply_log: ReplyLog | None = None,
    ) -> None:
        super().__init__()
        self._chats = chats
        self._engine = engine
        self._background = background
        self._reply_log = reply_log
        self._quitting = False
        self._waiting: dict[ConversationId, list[Turn]] = {}
        self._live: list[Turn] = []
        """Every turn whose end is not on disk yet, in the order they were begun."""

    def turns_of(self, conversation_id: ConversationId | None) -> list[Turn]:
        return [turn for turn in self._live if turn.question.conversation_id == conversation_id]

    def replying(self) -> set[ConversationId]:
        return {turn.question.conversation_id for turn in self._live if turn.answering}

    async def answer(
        self,
        question: StoredMessage,
        model: ModelConfig,
        sampling: SamplingParams,
        default_template: str | None = None,
        *,
        begun: StoredMessage | None = None,
        may_drop: bool = False,
    ) -> Turn:
        """Begin the reply on disk and queue it; begun: a reply that goes on. Raises NotSaved; the question stays."""
        if begun is None:
            reply = await self._chats.run(
                ConversationStore.begin_reply, question.conversation_id, question.id, model.path, sampling
            )
        else:
            reply = await self._chats.run(resume_reply, begun.id, model.path, sampling)
        turn = Turn(
            Question(
                question.conversation_id,
                question.id,
                question.content,
                reply.id,
                model,
                sampling,
                default_template,
                begun,
                may_drop,
            ),
            self._chats,
            self._engine,
            self,
        )
        turn.not_saved.connect(self.not_saved)
        turn.saved.connect(self.saved)
        self._live.append(turn)
        self.begun.emit(turn)
        self.replying_changed.emit()
        waiting = self._waiting.get(question.conversation_id)
        if waiting is None:
            self._waiting[question.conversation_id] = [turn]
            self._background.start(self._run_chat(question.conversation_id))
        else:
            waiting.append(turn)
        return turn

    def stop(self, conversation_id: ConversationId) -> None:
        """Stop the reply that runs; those waiting behind it are answered next."""
        for turn in self.turns_of(conversation_id):
            if turn.answering:
                turn.stop()
                return

    def stop_all(self, conversation_id: ConversationId) -> None:
        for turn in self.turns_of(conversation_id):
            turn.stop()

    async def interrupt_all(self) -> None:
        """The app quits: every partial reply is marked and on disk when this returns."""
        self._quitting = True
        for waiting in self._waiting.values():
            waiting.clear()
        await asyncio.gather(*(turn.interrupt() for turn in self._live))

    async def _run_chat(self, conversation_id: ConversationId) -> None:
        waiting = self._waiting[conversation_id]
        try:
            while waiting:
                turn = waiting.pop(0)
                for former in self.turns_of(conversation_id):
                    if not former.answering:
                        # The next prompt is read from the disk, which may have been full.
                        await former.until_kept()
                run = self._background.start(turn.run())
                await turn.answered.wait()
                if turn.refused_as_too_long:
                    # Whatever was asked after it would be longer still.
                    refused = [turn, *waiting]
                    waiting.clear()
                    await self._withdraw(refused)
                else:
                    run.add_done_callback(partial(self._forget, turn))
                    self._log_reply(turn)
                    self.ended.emit(turn)
                self.replying_changed.emit()
        finally:
            del self._waiting[conversation_id]

    def _forget(self, turn: Turn, _run: asyncio.Task[None]) -> None:
        self._live.remove(turn)
        if not self._quitting:  # interrupt() is not done with it then
            turn.deleteLater()

    async def _withdraw(self, turns: list[Turn]) -> None:
        """The last one first: a question that others follow cannot be taken back."""
        assert turns[0].failed is not None
        why = turns[0].failed.message
        for turn in reversed(turns):
            self._live.remove(turn)
            try:
                await self._chats.run(ConversationStore.withdraw, turn.question.user_id)
            except (NotSaved, ValueError):
                # The disk is full, or an earlier try was answered in part: it stays, with the reason under it.
                turn.fail(ErrorCode.INTERNAL, why)
                self._background.start(turn.keep())
                self.ended.emit(turn)
            else:
                self.withdrawn.emit(turn, why)

    def _log_reply(self, turn: Turn) -> None:
        if turn.finished is None or self._reply_log is None:
            return
        try:
            self._reply_log.append(turn.question.conversation_id, turn.question.reply_id, turn.finished)
        except OSError as error:
            log.warning("event log not written: %s", error)
