"""One message: its bubble or its plain text, and below it caption, error card and buttons."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter

from desktop.chat.block_layout import estimated_text_height
from desktop.chat.hot_spot import HotSpot
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.markdown_document import MarkdownDocument
from desktop.chat.message_rows import MessageRows, RowPosition
from desktop.chat.text_layout import TextBlockLayout, Tone
from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_style import TranscriptStyle
from desktop.chat.verbatim_blocks import verbatim_blocks
from desktop.icons import icon

_BUBBLE_SHARE = 0.86
"""A user's message leaves the left of the column free, so that one sees who speaks."""
_STREAMING = ("queued", "reading", "writing")
RowSpan = tuple[RowPosition, RowPosition]


class MessageLayout:
    """Coordinates are relative to the top left corner of the column at the message's top.

    Heights are whole pixels, or text would tremble while one scrolls.
    """

    __slots__ = (
        "_document",
        "_error",
        "_footer_height",
        "_pad_x",
        "_pad_y",
        "_rows",
        "_style",
        "height",
        "message",
    )

    def __init__(self, message: TranscriptMessage, style: TranscriptStyle) -> None:
        self.message = message
        self._rows: MessageRows | None = None
        self._document: MarkdownDocument | None = None
        self._error: TextBlockLayout | None = None
        self._footer_height = 0.0
        self.height = 0.0
        self.restyle(style)

    @property
    def is_open(self) -> bool:
        """True once the text has been split into blocks; before that the height is a guess."""
        return self._rows is not None

    @property
    def laid_out_blocks(self) -> int:
        return sum(row.layout is not None for row in self._rows.rows) if self._rows else 0

    @property
    def open_characters(self) -> int:
        """Characters that the next flush of streamed text will parse again."""
        return self._document.open_characters if self._document else 0

    @property
    def parsed_characters(self) -> int:
        return self._document.parsed_characters if self._document else 0

    @property
    def rows(self) -> MessageRows:
        if self._rows is None:
            tone: Tone = "muted" if self.message.role == "notice" else "text"
            self._rows = MessageRows(self._style, self._rows_width(), tone)
            if self.message.role == "assistant":
                self._document = MarkdownDocument(self.message.text)
            self._read_blocks()
            self._measure_footer()
            self._sum_heights()
        return self._rows

    @property
    def rows_origin(self) -> QPointF:
        """Where the text begins."""
        if self.message.role == "user":
            return QPointF(self._style.column_width - self._bubble_width() + self._pad_x, self._pad_y)
        return QPointF(0, 0)

    def restyle(self, style: TranscriptStyle) -> None:
        self._style = style
        is_user = self.message.role == "user"
        self._pad_x, self._pad_y = (style.px(16), style.px(11)) if is_user else (0.0, 0.0)
        if self._rows is not None:
            self._rows.restyle(style, self._rows_width())
            self._measure_footer()
        self._sum_heights()

    def set_message(self, message: TranscriptMessage) -> None:
        """Shows a newer version of the message; text that was only extended is not read again."""
        before, self.message = self.message, message
        if self._rows is not None:
            if message.text != before.text:
                grown = message.text.startswith(before.text)
                if self._document is not None and grown:
                    self._document.append(message.text[len(before.text) :])
                elif self._document is not None:
                    self._document = MarkdownDocument(message.text)
                self._read_blocks()
            if message.state not in _STREAMING:
                self._rows.finish()
            self._measure_footer()
        self._sum_heights()

    def append(self, text: str) -> None:
        self.set_message(replace(self.message, text=self.message.text + text))

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between; True if that changed a height."""
        before = self.height
        rows, origin = self.rows, self.rows_origin.y()
        rows.lay_out(top - origin, bottom - origin)
        self._sum_heights()
        return self.height != before

    def release(self, top: float, bottom: float) -> None:
        if self._rows is not None:
            origin = self.rows_origin.y()
            self._rows.release(top - origin, bottom - origin)

    def _read_blocks(self) -> None:
        assert self._rows is not None
        if self._document is not None:
            self._rows.set_blocks(self._document.blocks())
        else:
            self._rows.set_blocks(verbatim_blocks(self.message.text))

    def _bubble_width(self) -> float:
        return self._rows_width() + 2 * self._pad_x

    def _rows_width(self) -> float:
        """A short message's bubble is only as wide as its text."""
        column = self._style.column_width
        if self.message.role != "user":
            return column
        widest = float(int(column * _BUBBLE_SHARE)) - 2 * self._pad_x
        if len(self.message.text) > 2 * self._style.characters_per_line:
            return widest
        lines = self.message.text.split("\n")
        if any(line.startswith(("```", "~~~")) for line in lines):
            return widest
        metrics = QFontMetricsF(self._style.text_font)
        natural = max(metrics.horizontalAdvance(line.expandtabs(4)) for line in lines)
        return min(widest, float(int(natural) + 2))

    def _sum_heights(self) -> None:
        if self._rows is None:
            message, style = self.message, self._style
            guess = estimated_text_height(message.text, style, style.column_width)
            extra = bool(message.caption) + bool(message.error) + bool(message.actions)
            self.height = guess + 2 * self._pad_y + extra * style.px(28)
        else:
            self.height = self._body_height() + self._footer_height

    def _body_height(self) -> float:
        assert self._rows is not None
        return self._rows.height + 2 * self._pad_y if self._rows.rows else 0.0

    # Below the text: error card, caption, buttons.

    def _measure_footer(self) -> None:
        style, message = self._style, self.message
        self._error = None
        self._footer_height = 0.0
        if message.error:
            block = MarkdownBlock("verbatim", message.error)
            self._error = TextBlockLayout(block, style, style.column_width - style.px(56))
            self._footer_height += self._error.height + style.px(24) + style.px(12)
        if message.caption:
            self._footer_height += self._caption_rect(0).height() + style.px(10)
        if message.actions:
            self._footer_height += style.px(28) + style.px(8)

    def _caption_rect(self, top: float) -> QRectF:
        style = self._style
        room = QRectF(0, 0, style.column_width - self._dot_room(), 10_000)
        flags = Qt.TextFlag.TextWordWrap.value
        size = QFontMetricsF(style.small_font).boundingRect(room, flags, self.message.caption).size()
        is_user = self.message.role == "user"
        left = style.column_width - size.width() - 1 if is_user else self._dot_room()
        return QRectF(left, top, size.width() + 1, ceil(size.height()))

    def _dot_room(self) -> float:
        return self._style.px(16) if self.message.state in _STREAMING else 0.0

    def paint(self, painter: QPainter, clip: QRectF, span: RowSpan | None) -> None:
        style, theme = self._style, self._style.theme
        rows, origin = self.rows, self.rows_origin
        if self.message.role == "user" and rows.rows:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(theme.bubble))
            left = origin.x() - self._pad_x
            painter.drawRoundedRect(QRectF(left, 0, self._bubble_width(), self._body_height()), 14, 14)
        painter.save()
        painter.translate(origin)
        rows.paint(painter, clip.translated(-origin), span)
        painter.restore()
        top = self._body_height()
        if self._error is not None:
            top += style.px(12)
            card = QRectF(0.5, top + 0.5, style.column_width - 1, self._error.height + style.px(24) - 1)
            painter.setPen(QColor(theme.error_border))
            painter.setBrush(QColor(theme.error_card))
            painter.drawRoundedRect(card, 8, 8)
            size = int(style.px(18))
            icon("warning", theme.error).paint(
                painter, int(style.px(14)), int(top + style.px(13)), size, size
            )
            painter.save()
            painter.translate(style.px(42), top + style.px(12))
            self._error.paint(painter, QRectF(), None)
            painter.restore()
            top += card.height() + 1
        if self.message.caption:
            self._paint_caption(painter, self._caption_rect(top + style.px(10)))

    def _paint_caption(self, painter: QPainter, rect: QRectF) -> None:
        theme = self._style.theme
        painter.setFont(self._style.small_font)
        painter.setPen(QColor(theme.muted))
        painter.drawText(rect, Qt.TextFlag.TextWordWrap.value, self.message.caption)
        if not self._dot_room():
            return
        # Reading is blue, writing glows, waiting is a ring.
        state = self.message.state
        colour = QColor({"reading": theme.prefilled, "writing": theme.accent}.get(state, theme.muted))
        radius = self._style.px(4)
        line = QFontMetricsF(self._style.small_font).lineSpacing()
        centre = QPointF(rect.left() - self._dot_room() + radius + 1, rect.top() + line / 2)
        painter.setPen(colour)
        painter.setBrush(Qt.BrushStyle.NoBrush if state == "queued" else colour)
        painter.drawEllipse(centre, radius, radius)

    def hot_spots(self, top: float, bottom: float) -> list[HotSpot]:
        """Buttons between two heights."""
        spots: list[HotSpot] = []
        rows, origin = self.rows, self.rows_origin
        for _, row, y in rows.placed():
            if row.layout is not None and y + row.height >= top and y <= bottom:
                corner = QPointF(origin.x() + rows.block_left(row), origin.y() + y)
                spots += [replace(s, rect=s.rect.translated(corner)) for s in row.layout.hot_spots()]
        return spots + self._action_spots()

    def _action_spots(self) -> list[HotSpot]:
        style = self._style
        metrics = QFontMetricsF(QFont(style.small_font))
        spots: list[HotSpot] = []
        x, y = 0.0, self.height - style.px(28)
        for action, label in self.message.actions:
            width = float(int(metrics.horizontalAdvance(label) + style.px(24)))
            spots.append(HotSpot(QRectF(x, y, width, style.px(28)), "action", action, label))
            x += width + style.px(8)
        if self.message.role == "user" and spots:
            shift = style.column_width - spots[-1].rect.right()
            spots = [replace(spot, rect=spot.rect.translated(shift, 0)) for spot in spots]
        return spots
