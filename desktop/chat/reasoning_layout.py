"""What a model thought before its answer: a line that folds it away, and its text below."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from desktop.chat.chevron import paint_chevron
from desktop.chat.hot_spot import HotSpot, moved_spots
from desktop.chat.markdown_document import MarkdownDocument
from desktop.chat.message_rows import MessageRows
from desktop.chat.text_marks import PartMarks
from desktop.chat.transcript_message import ShownReasoning
from desktop.chat.transcript_style import TranscriptStyle


class ReasoningLayout:
    """Coordinates are relative to the top left corner of the column at the message's top.

    Folded away, its text is not even parsed.
    """

    __slots__ = ("_document", "_is_unfolded", "_reasoning", "_rows", "_style", "height")

    def __init__(self, reasoning: ShownReasoning, style: TranscriptStyle, *, is_unfolded: bool) -> None:
        self._reasoning = reasoning
        self._style = style
        self._is_unfolded = False
        self._document: MarkdownDocument | None = None
        self._rows: MessageRows | None = None
        self.height = 0.0
        self._sum_heights()
        self.unfold(is_unfolded)

    @property
    def is_unfolded(self) -> bool:
        return self._is_unfolded

    @property
    def open_characters(self) -> int:
        return self._document.open_characters if self._document else 0

    def unfold(self, is_unfolded: bool) -> None:
        if is_unfolded == self._is_unfolded:
            return
        self._is_unfolded = is_unfolded
        if is_unfolded:
            self._document = MarkdownDocument(self._reasoning.text)
            self._rows = MessageRows(self._style, self._rows_width(), "aside")
            self._rows.set_blocks(self._document.blocks())
        else:
            self._document = self._rows = None
        self._sum_heights()

    def show(self, reasoning: ShownReasoning) -> None:
        before, self._reasoning = self._reasoning.text, reasoning
        if self._document is not None and self._rows is not None and reasoning.text != before:
            if reasoning.text.startswith(before):
                self._document.append(reasoning.text[len(before) :])
            else:
                self._document = MarkdownDocument(reasoning.text)
            self._rows.set_blocks(self._document.blocks())
        self._sum_heights()

    def restyle(self, style: TranscriptStyle) -> None:
        self._style = style
        if self._rows is not None:
            self._rows.restyle(style, self._rows_width())
        self._sum_heights()

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between; True if that changed a height."""
        if self._rows is None:
            return False
        changed = self._rows.lay_out(top - self._rows_top(), bottom - self._rows_top())
        self._sum_heights()
        return changed

    def y_of(self, row: int, offset: int) -> float:
        """As MessageRows.y_of; it must be unfolded."""
        assert self._rows is not None
        y = self._rows_top() + self._rows.y_of(row, offset)
        self._sum_heights()
        return y

    def release(self, top: float, bottom: float) -> None:
        if self._rows is not None:
            self._rows.release(top - self._rows_top(), bottom - self._rows_top())

    def finish(self) -> None:
        if self._rows is not None:
            self._rows.finish()

    def _indent(self) -> float:
        return self._style.px(18)

    def _rows_width(self) -> float:
        return self._style.column_width - self._indent()

    def _line_height(self) -> float:
        return float(ceil(QFontMetricsF(self._style.small_font).lineSpacing()))

    def _rows_top(self) -> float:
        return self._line_height() + self._style.px(10)

    def _rows_origin(self) -> QPointF:
        return QPointF(self._indent(), self._rows_top())

    def _sum_heights(self) -> None:
        text_height = self._rows.height if self._rows is not None and self._rows.rows else 0.0
        below = self._style.px(14)
        self.height = (self._rows_top() + text_height if text_height else self._line_height()) + below

    def paint(self, painter: QPainter, clip: QRectF, marks: PartMarks | None = None) -> None:
        style, theme = self._style, self._style.theme
        painter.setFont(style.small_font)
        painter.setPen(QColor(theme.muted))
        line = self._line()
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, self._reasoning.words)
        centre = QPointF(line.right() + style.px(10), line.center().y())
        paint_chevron(painter, centre, style, is_unfolded=self._is_unfolded)
        if self._rows is None or not self._rows.rows:
            return
        origin = self._rows_origin()
        painter.fillRect(QRectF(2, origin.y(), 3, self._rows.height), QColor(theme.border))
        painter.save()
        painter.translate(origin)
        self._rows.paint(painter, clip.translated(-origin), None, marks)
        painter.restore()

    def _line(self) -> QRectF:
        metrics = QFontMetricsF(self._style.small_font)
        return QRectF(0, 0, metrics.horizontalAdvance(self._reasoning.words) + 1, self._line_height())

    def hot_spots(self, top: float, bottom: float) -> list[HotSpot]:
        """The line itself, and buttons of its blocks between two heights."""
        pad = self._style.px(4)
        rect = self._line().adjusted(-pad, -pad, self._style.px(20), pad)
        label = "Hide the reasoning" if self._is_unfolded else "Show the reasoning"
        spots = [HotSpot(rect, "reasoning", "", label)]
        if self._rows is None:
            return spots
        origin = self._rows_origin()
        return spots + moved_spots(self._rows.hot_spots(top - origin.y(), bottom - origin.y()), origin)
