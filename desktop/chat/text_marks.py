"""What is marked in a transcript because it was searched for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from desktop.chat.block_layout import Highlight, Span, block_text
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.utf16 import utf16_length
from desktop.conversations.text_folding import spans_in

MessagePart = Literal["reasoning", "text"]


class MarkPlace(NamedTuple):
    """start and end: UTF-16 positions in the text of the block that is the part's row."""

    key: int
    """Of the message."""
    part: MessagePart
    row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextMarks:
    """pattern: for folded text (see text_folding). current: the one that one has gone to."""

    pattern: re.Pattern[str]
    current: MarkPlace | None = None

    def of_part(self, key: int, part: MessagePart) -> PartMarks:
        current = self.current
        is_here = current is not None and (current.key, current.part) == (key, part)
        return PartMarks(self.pattern, current if is_here else None)


@dataclass(frozen=True, slots=True)
class PartMarks:
    """Of one part of one message."""

    pattern: re.Pattern[str]
    current: MarkPlace | None

    def in_row(self, row: int, text: str) -> list[Highlight]:
        current = self.current
        here = None if current is None or current.row != row else (current.start, current.end)
        return [
            Highlight(*span, "current" if span == here else "match")
            for span in marked_spans(text, self.pattern)
        ]


# What is on the screen is painted again and again.
@lru_cache(maxsize=128)
def marked_spans(text: str, pattern: re.Pattern[str]) -> tuple[Span, ...]:
    """In UTF-16 code units."""
    spans = tuple(spans_in(text, pattern))
    if text.isascii() or not spans:
        return spans
    in_units: list[Span] = []
    place = units = 0
    for start, end in spans:
        first = units + utf16_length(text[place:start])
        place, units = end, first + utf16_length(text[start:end])
        in_units.append((first, units))
    return tuple(in_units)


def marks_in_blocks(
    key: int, part: MessagePart, blocks: Iterable[MarkdownBlock], pattern: re.Pattern[str]
) -> Iterator[MarkPlace]:
    for row, block in enumerate(blocks):
        for start, end in marked_spans(block_text(block), pattern):
            yield MarkPlace(key, part, row, start, end)
