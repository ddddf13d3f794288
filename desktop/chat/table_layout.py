"""Tables: a grid of small text documents, scrolled sideways when they are too wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QTextDocument

from desktop.chat.block_layout import BlockLayout, Highlight
from desktop.chat.inline_runs import inline_runs
from desktop.chat.markdown_blocks import MarkdownBlock, References
from desktop.chat.text_layout import (
    document_point,
    document_position,
    document_text,
    lead_px,
    paint_document,
    text_document,
)
from desktop.chat.transcript_style import TranscriptStyle

_ALIGNMENTS = {
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}


@dataclass(frozen=True, slots=True)
class _Cell:
    source: str
    document: QTextDocument
    natural_width: float


class TableLayout(BlockLayout):
    """`previous` is the layout of the same table with fewer rows: its cells are used again."""

    def __init__(
        self, block: MarkdownBlock, style: TranscriptStyle, width: float, previous: TableLayout | None = None
    ) -> None:
        super().__init__(style, width)
        assert block.table is not None
        self._references: References = block.references
        self._pad_x, self._pad_y = style.px(10), style.px(6)
        old: list[list[_Cell]] = []
        if previous is not None and previous.style is style and previous._references == block.references:
            old = previous._rows
        alignments = block.table.alignments
        self._rows: list[list[_Cell]] = []
        for r, row in enumerate(block.table.rows):
            old_row = old[r] if r < len(old) else []
            self._rows.append(
                [
                    old_row[c]
                    if c < len(old_row) and old_row[c].source == source
                    else self._cell(source, is_header=r == 0, alignment=alignments[c])
                    for c, source in enumerate(row)
                ]
            )
        self._place()
        if previous is not None:
            self.scroll_by(previous.scroll_x)

    def _cell(self, source: str, is_header: bool, alignment: str) -> _Cell:
        font = QFont(self.style.text_font)
        font.setPixelSize(round(font.pixelSize() * 0.95))
        if is_header:
            font.setWeight(QFont.Weight.DemiBold)
        document = text_document(
            inline_runs(source, self._references),
            font,
            self.style,
            alignment=_ALIGNMENTS.get(alignment, Qt.AlignmentFlag.AlignLeft),
            line_height=1.45,
        )
        return _Cell(source, document, document.idealWidth() + 1)

    def _place(self) -> None:
        natural = [max(row[c].natural_width for row in self._rows) for c in range(len(self._rows[0]))]
        room = self.width - 2 * self._pad_x * len(natural)
        widths = _shared_widths(natural, room, least=self.style.px(56))
        self._lefts = [0.0]
        for column_width in widths:
            self._lefts.append(self._lefts[-1] + column_width + 2 * self._pad_x)
        self._tops = [0.0]
        for row in self._rows:
            for cell, column_width in zip(row, widths, strict=True):
                if cell.document.textWidth() != column_width:
                    cell.document.setTextWidth(column_width)
            row_height = max(cell.document.size().height() - lead_px(cell.document) for cell in row)
            self._tops.append(self._tops[-1] + round(row_height) + 2 * self._pad_y)
        self.content_width = self._lefts[-1]
        self.height = self._tops[-1] + (self.style.px(10) if self.max_scroll_x else 0)

    @property
    def text(self) -> str:
        return "\n".join("\t".join(document_text(cell.document) for cell in row) for row in self._rows)

    def paint(self, painter: QPainter, clip: QRectF, highlights: Sequence[Highlight]) -> None:
        theme = self.style.theme
        painter.save()
        painter.setClipRect(QRectF(0, 0, self.width, self.height), Qt.ClipOperation.IntersectClip)
        painter.save()
        painter.translate(-self.scroll_x, 0)
        start = 0
        for row, top, bottom in zip(self._rows, self._tops, self._tops[1:], strict=False):
            visible = bottom >= clip.top() and top <= clip.bottom()
            if visible:
                strong = row is self._rows[0]
                line = QRectF(0, bottom - 1, self.content_width, 1)
                painter.fillRect(line, QColor(theme.muted if strong else theme.border))
            for cell, left in zip(row, self._lefts, strict=False):
                length = cell.document.characterCount() - 1
                if visible:
                    painter.save()
                    painter.translate(left + self._pad_x, top + self._pad_y - lead_px(cell.document))
                    inside = [
                        Highlight(max(0, mark.start - start), min(length, mark.end - start), mark.kind)
                        for mark in highlights
                    ]
                    paint_document(painter, cell.document, QRectF(), inside, theme.text, theme)
                    painter.restore()
                start += length + 1
        painter.restore()
        self.paint_scroll_thumb(painter)
        painter.restore()

    def point_at(self, position: int) -> QPointF:
        start = 0
        for row, top in zip(self._rows, self._tops, strict=False):
            for cell, left in zip(row, self._lefts, strict=False):
                if position - start < cell.document.characterCount():
                    inside = document_point(cell.document, position - start)
                    return QPointF(left + self._pad_x, top + self._pad_y) + inside
                start += cell.document.characterCount()
        return QPointF(0, self.height)

    def position_at(self, point: QPointF) -> int:
        row, column, local = self._cell_at(point)
        before = sum(c.document.characterCount() for r in self._rows[:row] for c in r)
        before += sum(c.document.characterCount() for c in self._rows[row][:column])
        document = self._rows[row][column].document
        return before + document_position(document, local)

    def url_at(self, point: QPointF) -> str:
        row, column, local = self._cell_at(point)
        return self._rows[row][column].document.documentLayout().anchorAt(local)

    def _cell_at(self, point: QPointF) -> tuple[int, int, QPointF]:
        x = point.x() + self.scroll_x
        row = max(0, sum(top <= point.y() for top in self._tops[:-1]) - 1)
        column = max(0, sum(left <= x for left in self._lefts[:-1]) - 1)
        lead = lead_px(self._rows[row][column].document)
        y = point.y() - self._tops[row] - self._pad_y + lead
        return row, column, QPointF(x - self._lefts[column] - self._pad_x, y)


def _shared_widths(natural: list[float], room: float, least: float) -> list[float]:
    """Column widths in whole pixels: narrow columns as wide as they like, the others share what is left."""
    widths = [0.0] * len(natural)
    left, room_left = len(natural), room
    for column in sorted(range(len(natural)), key=natural.__getitem__):
        share = max(least, room_left / left)
        widths[column] = float(int(min(natural[column] + 1, share)))
        room_left -= widths[column]
        left -= 1
    return widths
