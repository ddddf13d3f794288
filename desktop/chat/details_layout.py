"""A message's details: a small table of labels and values on a card."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPolygonF, QTextDocument

from desktop.chat.inline_runs import InlineRun
from desktop.chat.text_layout import lead_px, paint_document, text_document
from desktop.chat.transcript_message import Detail, TokenOrigin
from desktop.chat.transcript_style import TranscriptStyle


class DetailsLayout:
    """Coordinates are relative to the card's top left corner; its height is in whole pixels."""

    def __init__(self, details: Sequence[Detail], style: TranscriptStyle, width: float) -> None:
        self._style = style
        self._details = details
        self._width = width
        self._padding = style.px(12)
        self._mark_room = style.px(16)
        metrics = QFontMetricsF(style.small_font)
        labels_width = max(metrics.horizontalAdvance(detail.label) for detail in details)
        self._values_left = self._padding + self._mark_room + float(ceil(labels_width)) + style.px(16)
        self._values: list[QTextDocument] = []
        self._tops = [self._padding]
        for detail in details:
            value = text_document([InlineRun(detail.value)], style.small_font, style, line_height=1.45)
            value.setTextWidth(max(60.0, width - self._values_left - self._padding))
            self._values.append(value)
            self._tops.append(self._tops[-1] + ceil(value.size().height() - lead_px(value)) + style.px(4))
        self.height = self._tops[-1] - style.px(4) + self._padding

    def paint(self, painter: QPainter) -> None:
        theme, font = self._style.theme, self._style.small_font
        painter.setPen(QColor(theme.border))
        painter.setBrush(QColor(theme.card))
        painter.drawRoundedRect(QRectF(0.5, 0.5, self._width - 1, self.height - 1), 8, 8)
        ascent = QFontMetricsF(font).ascent()
        for detail, value, top in zip(self._details, self._values, self._tops, strict=False):
            if detail.origin is not None:
                self._paint_mark(painter, detail.origin, QPointF(self._padding, top + ascent * 0.65))
            painter.setFont(font)
            painter.setPen(QColor(theme.muted))
            painter.drawText(QPointF(self._padding + self._mark_room, top + ascent), detail.label)
            painter.save()
            painter.translate(self._values_left, top - lead_px(value))
            paint_document(painter, value, QRectF(), (), theme.text, theme)
            painter.restore()

    def _paint_mark(self, painter: QPainter, origin: TokenOrigin, left: QPointF) -> None:
        """A shape and a colour for each place that tokens come from."""
        theme, radius = self._style.theme, self._style.px(4)
        centre = left + QPointF(radius, 0)
        colours = {"reused": theme.reused, "restored": theme.restored, "prefilled": theme.prefilled}
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colours[origin]))
        match origin:
            case "reused":
                painter.drawEllipse(centre, radius, radius)
            case "restored":
                corners = (QPointF(0, -radius), QPointF(radius, 0), QPointF(0, radius), QPointF(-radius, 0))
                painter.drawPolygon(QPolygonF([centre + corner for corner in corners]))
            case "prefilled":
                side = 2 * radius - 1
                painter.drawRect(QRectF(centre.x() - side / 2, centre.y() - side / 2, side, side))
