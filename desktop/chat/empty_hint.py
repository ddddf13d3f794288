"""What an empty chat shows: a title and a few things to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter

from desktop.chat.hot_spot import HotSpot
from desktop.chat.transcript_style import TranscriptStyle


@dataclass(frozen=True, slots=True)
class EmptyHint:
    title: str = ""
    lines: Sequence[str] = ()
    note: str = ""
    """Small, below the title."""

    def paint(self, painter: QPainter, style: TranscriptStyle, height: float) -> None:
        """Paints the title; the lines are hot spots. Coordinates are relative to the column."""
        font = QFont(style.text_font)
        font.setPixelSize(round(font.pixelSize() * 1.6))
        font.setWeight(QFont.Weight.DemiBold)
        painter.setFont(font)
        painter.setPen(QColor(style.theme.text))
        top, title_height = self._top(style, height), self._title_height(style)
        box = QRectF(0, top, style.column_width, title_height)
        flags = Qt.AlignmentFlag.AlignHCenter.value | Qt.TextFlag.TextWordWrap.value
        painter.drawText(box, flags, self.title)
        if self.note:
            painter.setFont(style.text_font)
            painter.setPen(QColor(style.theme.muted))
            below = QRectF(0, box.bottom(), style.column_width, self._note_height(style))
            painter.drawText(below, flags, self.note)

    def hot_spots(self, style: TranscriptStyle, height: float) -> list[HotSpot]:
        width = min(style.column_width, style.px(460))
        left = float(int((style.column_width - width) / 2))
        top = self._top(style, height) + self._title_height(style) + self._note_height(style)
        spots = []
        for line in self.lines:
            spots.append(HotSpot(QRectF(left, top, width, style.px(46)), "suggestion", line, line))
            top += style.px(56)
        return spots

    def _title_height(self, style: TranscriptStyle) -> float:
        return style.px(72 if style.column_width >= style.px(380) else 96)

    def _note_height(self, style: TranscriptStyle) -> float:
        if not self.note:
            return 0.0
        room = QRectF(0, 0, style.column_width, 10_000)
        flags = Qt.TextFlag.TextWordWrap.value
        return ceil(QFontMetricsF(style.text_font).boundingRect(room, flags, self.note).height()) + style.px(
            24
        )

    def _top(self, style: TranscriptStyle, height: float) -> float:
        content = self._title_height(style) + self._note_height(style) + len(self.lines) * style.px(56)
        return max(style.px(16), float(int((height - content) * 0.45)))
