"""What stands below a message's text: error card, caption with its details, buttons."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from desktop.chat.chevron import paint_chevron
from desktop.chat.details_layout import DetailsLayout
from desktop.chat.hot_spot import HotSpot, moved_spots
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.text_layout import TextBlockLayout
from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_style import TranscriptStyle
from desktop.icons import icon

STREAMING_STATES = ("queued", "reading", "writing")


class MessageFooter:
    """Coordinates are relative to the top left corner of the column where the message's text ends."""

    def __init__(self, message: TranscriptMessage, style: TranscriptStyle, is_unfolded: bool) -> None:
        self._message = message
        self._style = style
        self._is_unfolded = is_unfolded
        self._error: TextBlockLayout | None = None
        self._details: DetailsLayout | None = None
        self.height = 0.0
        if message.error:
            block = MarkdownBlock("verbatim", message.error)
            self._error = TextBlockLayout(block, style, style.column_width - style.px(56))
            self.height += style.px(12) + self._error.height + style.px(24)
        self._caption = QRectF()
        self._caption_text = " · ".join(
            part for part in (message.standing, _with_whole_figures(message.caption)) if part
        )
        if self._caption_text:
            self._caption = self._caption_rect(self.height + style.px(10))
            self.height = self._caption.bottom()
        if message.details and is_unfolded:
            self._details = DetailsLayout(message.details, style, style.column_width)
            self._details_top = self.height + style.px(8)
            self.height = self._details_top + self._details.height
        self._actions = self._placed_actions()
        if self._actions:
            self.height = self._actions[-1].rect.bottom()

    def _caption_rect(self, top: float) -> QRectF:
        style, message = self._style, self._message
        room = QRectF(0, 0, style.column_width - self._dot_room() - self._chevron_room(), 10_000)
        flags = Qt.TextFlag.TextWordWrap.value
        size = QFontMetricsF(style.small_font).boundingRect(room, flags, self._caption_text).size()
        left = style.column_width - size.width() - 1 if message.role == "user" else self._dot_room()
        return QRectF(left, top, size.width() + 1, ceil(size.height()))

    def _dot_room(self) -> float:
        return self._style.px(16) if self._message.state in STREAMING_STATES else 0.0

    def _chevron_room(self) -> float:
        return self._style.px(20) if self._message.details else 0.0

    def paint(self, painter: QPainter) -> None:
        if self._error is not None:
            self._paint_error(painter, self._error)
        if self._caption_text:
            self._paint_caption(painter)
        if self._details is not None:
            painter.save()
            painter.translate(0, self._details_top)
            self._details.paint(painter)
            painter.restore()

    def _paint_error(self, painter: QPainter, error: TextBlockLayout) -> None:
        style, theme = self._style, self._style.theme
        top = style.px(12)
        card = QRectF(0.5, top + 0.5, style.column_width - 1, error.height + style.px(24) - 1)
        painter.setPen(QColor(theme.error_border))
        painter.setBrush(QColor(theme.error_card))
        painter.drawRoundedRect(card, 8, 8)
        size = int(style.px(18))
        icon("warning", theme.error).paint(painter, int(style.px(14)), int(top + style.px(13)), size, size)
        painter.save()
        painter.translate(style.px(42), top + style.px(12))
        error.paint(painter, QRectF(), ())
        painter.restore()

    def _paint_caption(self, painter: QPainter) -> None:
        style, theme, rect = self._style, self._style.theme, self._caption
        painter.setFont(style.small_font)
        painter.setPen(QColor(theme.muted))
        painter.drawText(rect, Qt.TextFlag.TextWordWrap.value, self._caption_text)
        line = QFontMetricsF(style.small_font).lineSpacing()
        if self._message.details:
            centre = QPointF(rect.right() + style.px(10), rect.bottom() - line / 2)
            paint_chevron(painter, centre, style, is_unfolded=self._is_unfolded)
        if not self._dot_room():
            return
        # Reading is blue, writing glows, waiting is a ring.
        state = self._message.state
        colour = QColor({"reading": theme.prefilled, "writing": theme.accent}.get(state, theme.muted))
        radius = style.px(4)
        centre = QPointF(rect.left() - self._dot_room() + radius + 1, rect.top() + line / 2)
        painter.setPen(colour)
        painter.setBrush(Qt.BrushStyle.NoBrush if state == "queued" else colour)
        painter.drawEllipse(centre, radius, radius)

    def hot_spots(self) -> list[HotSpot]:
        return self._details_spots() + self._actions

    def _details_spots(self) -> list[HotSpot]:
        if not self._message.details or not self._caption_text:
            return []
        pad = self._style.px(4)
        rect = self._caption.adjusted(-pad, -pad, self._chevron_room(), pad)
        return [HotSpot(rect, "details", "", "Hide the receipt" if self._is_unfolded else "Show the receipt")]

    def _placed_actions(self) -> list[HotSpot]:
        """In as many lines as they need."""
        style = self._style
        metrics = QFontMetricsF(style.small_font)
        lines: list[list[HotSpot]] = []
        x, y = style.column_width, self.height
        for action, label in self._message.actions:
            width = float(int(metrics.horizontalAdvance(label) + style.px(24)))
            if not lines or x + width > style.column_width:
                x, y = 0.0, self.height + style.px(8) + len(lines) * style.px(36)
                lines.append([])
            lines[-1].append(HotSpot(QRectF(x, y, width, style.px(28)), "action", action, label))
            x += width + style.px(8)
        if self._message.role == "user":
            for line in lines:
                shift = style.column_width - line[-1].rect.right()
                line[:] = moved_spots(line, QPointF(shift, 0))
        return [spot for line in lines for spot in line]


def _with_whole_figures(caption: str) -> str:
    """Lines break between figures, not within "tok/s" nor before a unit; a sentence breaks anywhere."""
    figures = caption.split(" · ")
    if len(figures) == 1:
        return caption
    return " · ".join(figure.replace(" ", "\u00a0").replace("/", "\u2060/\u2060") for figure in figures)
