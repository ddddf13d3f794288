"""Finding text in the open chat: where it is, how often, and from one place to the next."""

from __future__ import annotations

import re

from PySide6.QtCore import QElapsedTimer, QObject, QTimer, Signal

from desktop.chat.message_layout import MessageLayout
from desktop.chat.message_marks import letters_of, marks_in, may_have
from desktop.chat.text_marks import MarkPlace, TextMarks
from desktop.chat.transcript_view import TranscriptView
from desktop.conversations.text_folding import folded

SLICE_MS = 5
"""How long the window waits at a time for messages to be read."""
CHANGED_PAUSE_MS = 150
"""A reply that streams is looked through again so often."""


class ChatFind(QObject):
    """Reads a chat's messages in slices, beginning with those on the screen; none is laid out for it."""

    changed = Signal()
    """What `number`, `count` or `is_counting` say."""

    def __init__(self, transcript: TranscriptView, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._transcript = transcript
        self._pattern: re.Pattern[str] | None = None
        self._letters = ""
        self._counts: dict[int, tuple[str, str, int]] = {}
        """By message: its text and reasoning when they were read, and how often they have it."""
        self._to_read: list[MessageLayout] = []
        self._current: MarkPlace | None = None
        self._nth = 0
        self._is_going = False
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._read_some)
        self._again = QTimer(self, singleShot=True, interval=CHANGED_PAUSE_MS)
        self._again.timeout.connect(self._read_changed)
        transcript.messages_changed.connect(self._messages_changed)

    @property
    def count(self) -> int:
        """How often it was found so far."""
        return sum(count for _, _, count in self._counts.values())

    @property
    def number(self) -> int | None:
        """Of the place one has gone to, from 1; None: there is none."""
        if self._current is None:
            return None
        before = 0
        for message in self._transcript.shown_messages():
            if message.message.key == self._current.key:
                return before + self._nth + 1
            before += self._count_of(message)
        return None

    @property
    def is_counting(self) -> bool:
        return bool(self._to_read)

    def look_for(self, text: str) -> None:
        """Marks it everywhere and goes to the next place from here on; empty: nothing is looked for any more."""
        pattern = re.compile(re.escape(folded(text))) if text else None
        if pattern == self._pattern:
            return
        start = self._index_of_current()
        self._pattern, self._letters = pattern, letters_of(text)
        self._counts.clear()
        self._current = None
        self._is_going = pattern is not None
        self._transcript.show_marks(None if pattern is None else TextMarks(pattern))
        self._read_from(start)

    def go_next(self) -> None:
        self._go(1)

    def go_previous(self) -> None:
        self._go(-1)

    def close(self) -> None:
        self.look_for("")
        self._slices.stop()
        self._again.stop()

    def _read_from(self, start: int) -> None:
        messages = self._transcript.shown_messages()
        self._to_read = [*messages[start:], *messages[:start]] if self._pattern is not None else []
        self._to_read.reverse()
        self._read_some()

    def _read_some(self) -> None:
        """Until the slice is over."""
        clock = QElapsedTimer()
        clock.start()
        while self._to_read and clock.elapsed() < SLICE_MS:
            message = self._to_read.pop()
            count = self._read(message)
            if count and self._is_going:
                self._is_going = False
                self._enter(message, 0)
        if self._to_read:
            self._slices.start()
        else:
            self._slices.stop()
            self._is_going = False
        self.changed.emit()

    def _read(self, message: MessageLayout) -> int:
        if self._pattern is None:
            return 0
        shown = message.message
        reasoning = shown.reasoning.text if shown.reasoning is not None else ""
        known = self._counts.get(shown.key)
        if known is not None and known[0] == shown.text and known[1] == reasoning:
            return known[2]
        count = len(marks_in(message, self._pattern)) if may_have(message, self._letters) else 0
        self._counts[shown.key] = (shown.text, reasoning, count)
        return count

    def _count_of(self, message: MessageLayout) -> int:
        known = self._counts.get(message.message.key)
        return 0 if known is None else known[2]

    def _index_of_current(self) -> int:
        """Where one is: at the place gone to, else at what is at the top of the window."""
        messages = self._transcript.shown_messages()
        if self._current is not None:
            for index, message in enumerate(messages):
                if message.message.key == self._current.key:
                    return index
        return min(self._transcript.top_message(), max(0, len(messages) - 1))

    def _go(self, step: int) -> None:
        """To the next place, or the one before, and around the end of the chat."""
        messages = self._transcript.shown_messages()
        if self._pattern is None or not messages:
            return
        index = self._index_of_current()
        nth = self._nth + step
        if self._current is not None and 0 <= nth < self._count_of(messages[index]):
            self._enter(messages[index], nth)
            return
        first = index if self._current is None and step > 0 else index + step
        for distance in range(len(messages)):
            message = messages[(first + step * distance) % len(messages)]
            if count := self._count_of(message):
                self._enter(message, 0 if step > 0 else count - 1)
                return

    def _enter(self, message: MessageLayout, nth: int) -> None:
        assert self._pattern is not None
        places = marks_in(message, self._pattern)
        if not places:
            return
        self._nth = min(nth, len(places) - 1)
        self._current = places[self._nth]
        self._transcript.show_marks(TextMarks(self._pattern, self._current))
        self._transcript.go_to(self._current)
        self.changed.emit()

    def _messages_changed(self) -> None:
        if self._pattern is not None and not self._again.isActive():
            self._again.start()

    def _read_changed(self) -> None:
        """Messages that are as they were are not read again."""
        if self._pattern is None:
            return
        shown = {message.message.key for message in self._transcript.shown_messages()}
        self._counts = {key: known for key, known in self._counts.items() if key in shown}
        if self._current is not None and self._current.key not in shown:
            self._current = None
        self._transcript.show_marks(TextMarks(self._pattern, self._current))
        self._read_from(self._index_of_current())
