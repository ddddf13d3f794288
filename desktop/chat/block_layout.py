"""A markdown block with a width, a height and something to paint: what every kind of block can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from desktop.chat.hot_spot import HotSpot
from desktop.chat.inline_runs import plain_text
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.transcript_style import TranscriptStyle
from desktop.chat.utf16 import utf16_slice

Span = tuple[int, int]
"""First and last position of a part, in UTF-16 code units of the block's text."""
HighlightKind = Literal["match", "current", "selection"]


class Highlight(NamedTuple):
    """A part of a block that is set apart: found, the one gone to, or selected. Of two that overlap the later one is
    seen."""

    start: int
    end: int
    kind: HighlightKind


class BlockLayout(ABC):
    """Coordinates are relative to the block's top left corner; heights are whole pixels."""

    def __init__(self, style: TranscriptStyle, width: float) -> None:
        self.style = style
        self.width = width
        self.height = 0.0
        self.content_width = 0.0
        """More than the width if the block scrolls sideways."""
        self.scroll_x = 0.0

    @property
    @abstractmethod
    def text(self) -> str:
        """What is really shown, equal to `block_text` of the block."""

    @abstractmethod
    def paint(self, painter: QPainter, clip: QRectF, highlights: Sequence[Highlight]) -> None:
        """Paints the part inside `clip`."""

    @abstractmethod
    def position_at(self, point: QPointF) -> int:
        """The position in the text nearest to a point."""

    def point_at(self, position: int) -> QPointF:
        """Where the line of a position begins vertically, and the position lies in it before anything is scrolled
        sideways."""
        return QPointF(0, 0)

    def url_at(self, point: QPointF) -> str:
        """The address of the link under a point, "" if there is none."""
        return ""

    def hot_spots(self) -> list[HotSpot]:
        return []

    def finish(self) -> None:  # noqa: B027
        """Nothing more will be added to the block's message: most blocks have nothing to do then."""

    @property
    def is_right_to_left(self) -> bool:
        return False

    @property
    def max_scroll_x(self) -> float:
        return max(0.0, self.content_width - self.width)

    def scroll_by(self, distance: float) -> bool:
        """Scrolls sideways; False if there is nothing to scroll."""
        before = self.scroll_x
        self.scroll_x = min(max(0.0, before + distance), self.max_scroll_x)
        return self.scroll_x != before

    def bring_into_view(self, position: int) -> None:
        """Scrolls sideways, if need be, to where a position is seen."""
        x = self.point_at(position).x()
        if not self.scroll_x <= x <= self.scroll_x + 0.9 * self.width:
            self.scroll_by(x - 0.5 * self.width - self.scroll_x)

    def text_between(self, start: int, end: int) -> str:
        return utf16_slice(self.text, start, end)

    def paint_scroll_thumb(self, painter: QPainter) -> None:
        """A thin bar at the lower edge that says how much lies to the side."""
        if not self.max_scroll_x:
            return
        length = max(24.0, self.width * self.width / self.content_width)
        left = (self.width - length) * self.scroll_x / self.max_scroll_x
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self.style.theme.border))
        painter.drawRoundedRect(QRectF(left + 4, self.height - 6, length - 8, 4), 2, 2)


class RuleLayout(BlockLayout):
    """A thematic break."""

    def __init__(self, style: TranscriptStyle, width: float) -> None:
        super().__init__(style, width)
        self.height = style.px(9)

    @property
    def text(self) -> str:
        return ""

    def paint(self, painter: QPainter, clip: QRectF, highlights: Sequence[Highlight]) -> None:
        middle = int(self.height / 2)
        painter.fillRect(QRectF(0, middle, self.width, 1), QColor(self.style.theme.border))

    def position_at(self, point: QPointF) -> int:
        return 0


def block_text(block: MarkdownBlock) -> str:
    """What one reads of a block, found without laying it out."""
    if block.table is not None:
        rows = ("\t".join(plain_text(cell, block.references) for cell in row) for row in block.table.rows)
        return "\n".join(rows)
    if block.kind in ("text", "heading"):
        return plain_text(block.text, block.references)
    return block.text


def indent_px(block: MarkdownBlock, style: TranscriptStyle) -> float:
    """How far the block's containers move it to the side."""
    return sum(style.px(26 if c.kind == "item" else 18) for c in block.containers)


def gap_px(before: MarkdownBlock | None, block: MarkdownBlock, style: TranscriptStyle) -> float:
    """The distance to the block before."""
    if before is None:
        return 0.0
    if block.kind == "heading":
        return style.px(30 if block.level <= 2 else 24)
    if before.kind == "heading":
        return style.px(10)
    if block.kind == "verbatim" and block.joiner != "\n\n":
        return 0.0
    if block.joiner == "\n":
        return style.px(7)
    if block.kind == "rule" or before.kind == "rule":
        return style.px(18)
    if "code" in (block.kind, before.kind) or "table" in (block.kind, before.kind):
        return style.px(15)
    return style.px(14)


def estimated_height(block: MarkdownBlock, style: TranscriptStyle, width: float) -> float:
    """A height to scroll by until the block is laid out."""
    if block.kind == "code":
        return (block.text.count("\n") + 1) * style.code_line_height + style.px(52)
    if block.kind == "rule":
        return style.px(9)
    if block.table is not None:
        return len(block.table.rows) * style.px(36)
    return estimated_text_height(block.text, style, width)


def estimated_text_height(text: str, style: TranscriptStyle, width: float) -> float:
    per_line = max(8.0, style.characters_per_line * width / style.column_width)
    # Lines that end early leave on average half a line empty.
    lines = len(text) / per_line + 0.5 * text.count("\n") + 1
    return float(round(lines * style.line_height))
