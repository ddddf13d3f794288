"""The blocks of one message, one below the other; each is laid out only when it comes near the viewport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from desktop.chat.block_layout import (
    BlockLayout,
    Highlight,
    RuleLayout,
    block_text,
    estimated_height,
    gap_px,
    indent_px,
)
from desktop.chat.code_layout import CodeLayout
from desktop.chat.hot_spot import HotSpot, moved_spots
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.table_layout import TableLayout
from desktop.chat.text_layout import TextBlockLayout, Tone
from desktop.chat.text_marks import PartMarks
from desktop.chat.transcript_style import TranscriptStyle
from desktop.chat.utf16 import utf16_length, utf16_slice


class RowPosition(NamedTuple):
    """A place in a message's text: the row and the UTF-16 position within it."""

    row: int
    offset: int


class BlockRow:
    """A block, its height (estimated until it is measured) and, near the viewport, its layout."""

    __slots__ = ("block", "gap", "height", "layout", "measured", "stale")

    def __init__(self, block: MarkdownBlock, gap: float, height: float) -> None:
        self.block = block
        self.gap = gap
        self.height = height
        self.measured = False
        self.layout: BlockLayout | None = None
        self.stale: BlockLayout | None = None
        """The layout of a shorter version of the block."""


class PlacedRow(NamedTuple):
    number: int
    row: BlockRow
    top: float
    """Of the block itself, below its gap."""


class MessageRows:
    """Coordinates are relative to the top left corner of the message's text."""

    def __init__(self, style: TranscriptStyle, width: float, tone: Tone = "text") -> None:
        self.rows: list[BlockRow] = []
        self._style = style
        self.width = width
        self._tone = tone
        self.height = 0.0

    def set_blocks(self, blocks: Sequence[MarkdownBlock]) -> None:
        """Replaces the blocks; rows before the first difference keep their layouts."""
        same = 0
        for row, block in zip(self.rows, blocks, strict=False):
            if row.block is not block and row.block != block:
                break
            same += 1
        first_changed = self.rows[same] if same < len(self.rows) else None
        del self.rows[same:]
        before = self.rows[-1].block if self.rows else None
        for block in blocks[same:]:
            width = self._block_width(block)
            height = estimated_height(block, self._style, width)
            self.rows.append(BlockRow(block, gap_px(before, block, self._style), height))
            before = block
        if first_changed is not None and same < len(self.rows):
            row = self.rows[same]
            row.stale = first_changed.layout
            if first_changed.measured and row.block.kind == first_changed.block.kind:
                row.height = max(row.height, first_changed.height)
        self._sum_heights()

    def restyle(self, style: TranscriptStyle, width: float) -> None:
        """Lays everything out anew, when it is next looked at."""
        if style is self._style and width == self.width:
            return
        self._style, self.width = style, width
        before = None
        for row in self.rows:
            row.gap = gap_px(before, row.block, style)
            row.height = estimated_height(row.block, style, self._block_width(row.block))
            row.measured = False
            row.stale, row.layout = row.layout, None
            before = row.block
        self._sum_heights()

    def placed(self) -> Iterator[PlacedRow]:
        top = 0.0
        for index, row in enumerate(self.rows):
            top += row.gap
            yield PlacedRow(index, row, top)
            top += row.height

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between; True if that changed a height."""
        changed = False
        y = 0.0
        for row in self.rows:
            y += row.gap
            if y > bottom:
                break
            if y + row.height >= top and row.layout is None:
                changed |= self._lay_out_row(row)
            y += row.height
        if changed:
            self._sum_heights()
        return changed

    def release(self, top: float, bottom: float) -> None:
        """Gives up the layouts that do not touch the range; their heights stay."""
        for _, row, y in self.placed():
            if row.layout is not None and (y > bottom or y + row.height < top):
                row.layout = None
            row.stale = None

    def finish(self) -> None:
        for row in self.rows:
            if row.layout is not None:
                row.layout.finish()

    def _lay_out_row(self, row: BlockRow) -> bool:
        width = self._block_width(row.block)
        row.layout = _block_layout(row.block, self._style, width, self._tone, row.stale)
        row.stale = None
        row.measured = True
        changed = row.height != row.layout.height
        row.height = row.layout.height
        return changed

    def _block_width(self, block: MarkdownBlock) -> float:
        return max(60.0, self.width - indent_px(block, self._style))

    def _sum_heights(self) -> None:
        self.height = sum(row.gap + row.height for row in self.rows)

    def block_left(self, row: BlockRow) -> float:
        """Where the block begins: containers of right-to-left text stand at its right."""
        if row.layout is not None and row.layout.is_right_to_left:
            return 0.0
        return indent_px(row.block, self._style)

    def paint(
        self,
        painter: QPainter,
        clip: QRectF,
        span: tuple[RowPosition, RowPosition] | None,
        marks: PartMarks | None = None,
    ) -> None:
        """Paints the rows that touch `clip`; `span` is the selected part."""
        for index, row, top in self.placed():
            if top + row.height < clip.top():
                continue
            if top > clip.bottom():
                break
            if row.layout is None:
                continue
            left = self.block_left(row)
            self._paint_containers(painter, index, top)
            painter.save()
            painter.translate(left, top)
            highlights = marks.in_row(index, block_text(row.block)) if marks is not None else []
            highlights += _selected(index, span)
            row.layout.paint(painter, clip.translated(-left, -top), highlights)
            painter.restore()

    def _paint_containers(self, painter: QPainter, index: int, top: float) -> None:
        style, row = self._style, self.rows[index]
        right_to_left = row.layout is not None and row.layout.is_right_to_left
        x = 0.0
        for container in row.block.containers:
            if container.kind == "quote":
                bar = QRectF(x + 2, top, 3, row.height)
                if index and any(c.kind == "quote" for c in self.rows[index - 1].block.containers):
                    bar.setTop(top - row.gap)
                x += style.px(18)
                colour = style.theme.border
                painter.fillRect(self._mirrored(bar) if right_to_left else bar, QColor(colour))
                continue
            x += style.px(26)
            if container.marker:
                self._paint_marker(painter, container.marker, x, top, right_to_left)

    def _paint_marker(
        self, painter: QPainter, marker: str, right: float, top: float, right_to_left: bool
    ) -> None:
        style = self._style
        painter.setFont(style.text_font)
        painter.setPen(QColor(style.theme.muted))
        metrics = QFontMetricsF(style.text_font)
        marker_width = metrics.horizontalAdvance(marker)
        box = QRectF(right - marker_width - style.px(8), top, marker_width + 1, metrics.height())
        painter.drawText(self._mirrored(box) if right_to_left else box, Qt.AlignmentFlag.AlignTop, marker)

    def _mirrored(self, rect: QRectF) -> QRectF:
        return QRectF(self.width - rect.right(), rect.top(), rect.width(), rect.height())

    def hot_spots(self, top: float, bottom: float) -> list[HotSpot]:
        """Buttons of the blocks between two heights."""
        spots: list[HotSpot] = []
        for _, row, y in self.placed():
            if row.layout is not None and y + row.height >= top and y <= bottom:
                spots += moved_spots(row.layout.hot_spots(), QPointF(self.block_left(row), y))
        return spots

    def row_at(self, y: float) -> PlacedRow | None:
        """The row at a height, the nearest one if it lies between rows."""
        found = None
        for placed in self.placed():
            if found is not None and placed.top > y:
                break
            found = placed
        return found

    def position_at(self, point: QPointF) -> RowPosition:
        placed = self.row_at(point.y())
        if placed is None:
            return RowPosition(0, 0)
        if placed.row.layout is None:
            self._lay_out_row(placed.row)
        assert placed.row.layout is not None
        if point.y() > placed.top + placed.row.height:
            return RowPosition(placed.number, utf16_length(placed.row.layout.text))
        local = QPointF(point.x() - self.block_left(placed.row), point.y() - placed.top)
        return RowPosition(placed.number, placed.row.layout.position_at(local))

    def y_of(self, number: int, offset: int) -> float:
        """The top of the line that holds a place, which is laid out for it and brought into view sideways."""
        placed = next((placed for placed in self.placed() if placed.number == number), None)
        if placed is None:
            return 0.0
        if placed.row.layout is None:
            self._lay_out_row(placed.row)
            self._sum_heights()
        assert placed.row.layout is not None
        placed.row.layout.bring_into_view(offset)
        return placed.top + placed.row.layout.point_at(offset).y()

    def url_at(self, point: QPointF) -> str:
        """The address of the link under a point, "" if there is none."""
        placed = self.row_at(point.y())
        if placed is None or placed.row.layout is None:
            return ""
        return placed.row.layout.url_at(
            QPointF(point.x() - self.block_left(placed.row), point.y() - placed.top)
        )

    def end(self) -> RowPosition:
        if not self.rows:
            return RowPosition(0, 0)
        return RowPosition(len(self.rows) - 1, utf16_length(block_text(self.rows[-1].block)))

    def text_between(self, start: RowPosition, end: RowPosition) -> str:
        """The text between two places, with the markers of lists and quotes."""
        parts: list[str] = []
        for index in range(start.row, min(end.row + 1, len(self.rows))):
            block = self.rows[index].block
            text = block_text(block)
            first = start.offset if index == start.row else 0
            last = end.offset if index == end.row else utf16_length(text)
            if parts:
                parts.append(block.joiner)
            if not first and (last or not text):
                parts.append(block.copy_prefix)
            parts.append(utf16_slice(text, first, last))
        return "".join(parts)

    def text_on_screen(self) -> str:
        """The text of the layouts themselves, of all blocks."""
        parts: list[str] = []
        for row in self.rows:
            if row.layout is None:
                self._lay_out_row(row)
            assert row.layout is not None
            parts += [row.block.joiner if parts else "", row.block.copy_prefix, row.layout.text]
        self._sum_heights()
        return "".join(parts)


def _selected(index: int, span: tuple[RowPosition, RowPosition] | None) -> list[Highlight]:
    if span is None or not span[0].row <= index <= span[1].row:
        return []
    start = span[0].offset if index == span[0].row else 0
    return [Highlight(start, span[1].offset if index == span[1].row else 2**31 - 1, "selection")]


def _block_layout(
    block: MarkdownBlock, style: TranscriptStyle, width: float, tone: Tone, previous: BlockLayout | None
) -> BlockLayout:
    """Lays out a block; `previous` is the layout of a shorter version of it, if there is one."""
    match block.kind:
        case "code":
            return CodeLayout(block, style, width, previous if isinstance(previous, CodeLayout) else None)
        case "table":
            return TableLayout(block, style, width, previous if isinstance(previous, TableLayout) else None)
        case "rule":
            return RuleLayout(style, width)
        case _:
            return TextBlockLayout(block, style, width, tone)
