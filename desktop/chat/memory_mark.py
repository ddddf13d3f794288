"""Where the model's memory of a chat begins, shown in the transcript: a line, and marks of what it still sees above."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_style import TranscriptStyle
from desktop.conversations import KeptFit, MessageId
from desktop.quantities import format_count

PIN = ("pin_message", "Pin for the model")
UNPIN = ("unpin_message", "Unpin")
PINNED = "Pinned"
PINNED_ABOVE = "Pinned, still seen"
STILL_SEEN = "Still seen"
SEEN_AGAIN = "Pinned, seen from the next reply on"


class MemoryView:
    """Rows with what they are to the model. fit: of the chat's last reply; None: no reply was given any of it yet."""

    def __init__(self, fit: KeptFit | None, pinned: frozenset[MessageId]) -> None:
        self._pinned = pinned
        self._first_seen = None if fit is None else fit.first_seen
        self._left_out = frozenset(() if fit is None else fit.left_out)
        self._mark = "" if fit is None else mark_text(fit)

    def shown(self, row: TranscriptMessage) -> TranscriptMessage:
        is_pinned = row.key in self._pinned
        menu = ((UNPIN if is_pinned else PIN),) if row.role != "notice" and row.text else ()
        return replace(
            row,
            mark=self._mark if row.key == self._first_seen else "",
            standing=self._standing(row, is_pinned),
            menu=menu,
        )

    def _standing(self, row: TranscriptMessage, is_pinned: bool) -> str:
        if row.key in self._left_out:
            return SEEN_AGAIN if is_pinned else ""
        # A message never has a smaller id than the one it follows.
        is_above = self._first_seen is not None and row.key < self._first_seen
        if is_pinned:
            return PINNED_ABOVE if is_above else PINNED
        return STILL_SEEN if is_above and row.text else ""


def mark_text(fit: KeptFit) -> str:
    count = len(fit.left_out)
    messages = "message" if count == 1 else f"{format_count(count)} messages"
    kept = [
        words
        for words, is_there in (
            ("the system prompt", fit.has_system_prompt),
            ("what is pinned", fit.has_pinned),
        )
        if is_there
    ]
    but = f", only {' and '.join(kept)}" if kept else ""
    return f"The model no longer sees the {messages} above{but}"


def mark_height(text: str, style: TranscriptStyle) -> float:
    """In whole pixels; 0 where there is none."""
    return float(round(_text_rect(text, style).height() + style.px(28))) if text else 0.0


def paint_mark(painter: QPainter, text: str, style: TranscriptStyle) -> None:
    """At the top of the column: the words between two lines."""
    rect = _text_rect(text, style)
    painter.setFont(style.small_font)
    painter.setPen(QColor(style.theme.muted))
    flags = Qt.TextFlag.TextWordWrap.value | Qt.AlignmentFlag.AlignHCenter.value
    painter.drawText(rect, flags, text)
    painter.setPen(QPen(QColor(style.theme.border), 1, Qt.PenStyle.DashLine))
    y, gap = round(rect.center().y()) + 0.5, style.px(12)
    for start, end in ((0.0, rect.left() - gap), (rect.right() + gap, style.column_width)):
        if end > start:
            painter.drawLine(QPointF(start, y), QPointF(end, y))


def _text_rect(text: str, style: TranscriptStyle) -> QRectF:
    widest = style.column_width - 2 * style.px(48)
    flags = Qt.TextFlag.TextWordWrap.value
    size = QFontMetricsF(style.small_font).boundingRect(QRectF(0, 0, widest, 10_000), flags, text).size()
    return QRectF((style.column_width - size.width()) / 2, 0, size.width() + 1, size.height())
