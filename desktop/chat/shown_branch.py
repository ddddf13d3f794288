"""The branch of the open chat in the transcript: its stored messages and the replies under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from desktop.chat.memory_mark import MemoryView
from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_rows import shown_reasoning, stored_rows, turn_row
from desktop.chat.transcript_view import TranscriptView
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.conversations import ChatContext, ConversationId, KeptFit, MessageId, StoredMessage


class ShownBranch(QObject):
    """Replies of other chats go on unseen; `show` picks up whatever they have written by then."""

    reported = Signal(object)
    """An event of the shown chat's replies, for the gauges."""
    turn_changed = Signal()

    def __init__(self, transcript: TranscriptView, turns: TurnQueue) -> None:
        super().__init__()
        self._transcript = transcript
        self._turns = turns
        self._conversation_id: ConversationId | None = None
        self._is_private = False
        self.context = ChatContext()
        self._memory = MemoryView(None, frozenset())
        self._last_row: TranscriptMessage | None = None
        turns.begun.connect(self._turn_begun)

    @property
    def offered_actions(self) -> set[str]:
        """Ids of the actions under the last message."""
        return set() if self._last_row is None else {action for action, _ in self._last_row.actions}

    @property
    def last_has_text(self) -> bool:
        row = self._last_row
        return row is not None and row.role == "assistant" and bool(row.text or row.reasoning)

    def show(
        self,
        conversation_id: ConversationId | None,
        branch: Sequence[StoredMessage],
        context: ChatContext,
        *,
        is_private: bool,
    ) -> None:
        self.context = context
        self._conversation_id = conversation_id
        self._is_private = is_private
        rows = stored_rows(branch, self._turns.turns_of(conversation_id), context, is_private=is_private)
        self._memory = MemoryView(context.last_fit([message.id for message in branch]), context.pinned)
        self._last_row = rows[-1] if rows else None
        self._transcript.set_messages(rows)

    def follow(self, conversation_id: ConversationId) -> None:
        """The chat that is shown has got its row on disk."""
        self._conversation_id = conversation_id

    def shows(self, turn: Turn) -> bool:
        return turn.question.conversation_id == self._conversation_id

    def show_context(self, context: ChatContext) -> None:
        """Choice, pins or what the last reply was given are new."""
        self.context = context
        rows = [shown.message for shown in self._transcript.shown_messages()]
        self._memory = MemoryView(context.last_fit([MessageId(row.key) for row in rows]), context.pinned)
        for row in rows:
            if row != self._memory.shown(row):
                self.update(row)

    def append(self, row: TranscriptMessage) -> None:
        row = self._memory.shown(row)
        # Only the last message can be tried again.
        if self._last_row is not None and self._last_row.actions:
            self._transcript.update_message(replace(self._last_row, actions=()))
        self._transcript.append_message(row)
        self._last_row = row

    def update(self, row: TranscriptMessage) -> None:
        row = self._memory.shown(row)
        self._transcript.update_message(row)
        if self._is_last(row.key):
            self._last_row = row

    def replace_last(self, gone: int, row: TranscriptMessage) -> None:
        """Message `gone` leaves the branch and `row`, which was before it, is the last one now."""
        self._transcript.remove_message(gone)
        self._last_row = row
        self.update(row)
        self.show_context(self.context)

    def withdraw(self, reply_id: MessageId, user_id: MessageId) -> None:
        self._transcript.remove_message(reply_id)
        self._transcript.remove_message(user_id)
        self._last_row = None
        self.show_context(self.context)

    def _turn_begun(self, turn: Turn) -> None:
        turn.changed.connect(lambda: self._turn_changed(turn))
        turn.streamed.connect(lambda text: self._turn_streamed(turn, text))
        turn.reported.connect(lambda event: self._turn_reported(turn, event))
        if self.shows(turn) and turn.question.begun is not None:
            self.update(turn_row(turn, is_private=self._is_private))
        elif self.shows(turn):
            self.append(turn_row(turn, is_private=self._is_private))

    def _turn_changed(self, turn: Turn) -> None:
        # A question that was refused as too long is about to leave the transcript with its reply.
        if self.shows(turn) and not turn.refused_as_too_long:
            is_last = self._is_last(turn.question.reply_id)
            self.update(turn_row(turn, is_last=is_last, is_private=self._is_private))
            if turn.fit is not None:
                self._show_fit(turn.question.reply_id, turn.fit)
            self.turn_changed.emit()

    def _show_fit(self, reply_id: MessageId, fit: KeptFit) -> None:
        if self.context.fits.get(reply_id) != fit:
            self.show_context(replace(self.context, fits={**self.context.fits, reply_id: fit}))

    def _turn_streamed(self, turn: Turn, text: str) -> None:
        if self.shows(turn):
            reasoning = shown_reasoning(turn.reasoning, is_streaming=turn.answering)
            self._transcript.append_text(turn.question.reply_id, text, reasoning)

    def _turn_reported(self, turn: Turn, event: object) -> None:
        if self.shows(turn):
            self.reported.emit(event)

    def _is_last(self, key: int) -> bool:
        return self._last_row is not None and self._last_row.key == key
