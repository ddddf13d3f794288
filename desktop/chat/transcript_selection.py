"""The selected part of a transcript, across blocks and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QTextBoundaryFinder

from desktop.chat.block_layout import block_text
from desktop.chat.message_layout import MessageLayout, RowSpan
from desktop.chat.message_rows import RowPosition
from desktop.chat.utf16 import utf16_length

_END = RowPosition(2**31 - 1, 2**31 - 1)


class TranscriptPosition(NamedTuple):
    """A place in the transcript; positions compare in reading order."""

    message: int
    place: RowPosition


class TranscriptSelection:
    """From where the mouse was pressed to where it is now."""

    def __init__(self) -> None:
        self._anchor: TranscriptPosition | None = None
        self._cursor: TranscriptPosition | None = None

    @property
    def is_empty(self) -> bool:
        return self._anchor == self._cursor

    @property
    def exists(self) -> bool:
        """True if there is a place to extend from."""
        return self._anchor is not None

    def clear(self) -> None:
        self._anchor = self._cursor = None

    def start(self, position: TranscriptPosition) -> None:
        self._anchor = self._cursor = position

    def extend(self, position: TranscriptPosition) -> None:
        self._cursor = position

    def select_all(self, messages: Sequence[MessageLayout]) -> None:
        if messages:
            self._anchor = TranscriptPosition(0, RowPosition(0, 0))
            self._cursor = TranscriptPosition(len(messages) - 1, _END)

    def select_word(self, messages: Sequence[MessageLayout], position: TranscriptPosition) -> None:
        text = self._row_text(messages, position)
        finder = QTextBoundaryFinder(QTextBoundaryFinder.BoundaryType.Word, text)
        finder.setPosition(position.place.offset)
        start = position.place.offset if finder.isAtBoundary() else finder.toPreviousBoundary()
        end = finder.toNextBoundary()
        if end >= 0:
            self._select_in_row(position, max(0, start), end)

    def select_row(self, messages: Sequence[MessageLayout], position: TranscriptPosition) -> None:
        self._select_in_row(position, 0, utf16_length(self._row_text(messages, position)))

    def _select_in_row(self, position: TranscriptPosition, start: int, end: int) -> None:
        message, row = position.message, position.place.row
        self._anchor = TranscriptPosition(message, RowPosition(row, start))
        self._cursor = TranscriptPosition(message, RowPosition(row, end))

    @staticmethod
    def _row_text(messages: Sequence[MessageLayout], position: TranscriptPosition) -> str:
        rows = messages[position.message].rows.rows
        return block_text(rows[position.place.row].block) if rows else ""

    def span(self, message: int) -> RowSpan | None:
        """The selected part of one message."""
        if self._anchor is None or self._cursor is None or self.is_empty:
            return None
        first, last = sorted((self._anchor, self._cursor))
        if not first.message <= message <= last.message:
            return None
        return (
            first.place if message == first.message else RowPosition(0, 0),
            last.place if message == last.message else _END,
        )

    def text(self, messages: Sequence[MessageLayout]) -> str:
        """The selected text, messages separated by an empty line."""
        parts = []
        for index, message in enumerate(messages):
            span = self.span(index)
            if span is not None:
                rows = message.rows
                parts.append(rows.text_between(span[0], min(span[1], rows.end())))
        return "\n\n".join(parts)
