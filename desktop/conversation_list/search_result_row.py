"""One row of the search results: the chat and the day, and the words found with what stands around them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from math import ceil

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QPainter,
    QPen,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from desktop.chat.utf16 import utf16_length, utf16_slice
from desktop.conversation_list.day_words import short_moment
from desktop.conversation_list.list_model import NEW_CHAT_TITLE, Index
from desktop.conversations import SearchHit
from desktop.conversations.text_folding import TextSpan
from desktop.theme import Theme, theme_of

PAD_X, PAD_Y, GAP = 8, 7, 2
SNIPPET_LINES = 2
# SearchRole.HIT, which the model's file defines and which imports this one.
_HIT_ROLE = Qt.ItemDataRole.UserRole + 1


class SearchResultDelegate(QStyledItemDelegate):
    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        hit: SearchHit = index.data(_HIT_ROLE)
        theme = theme_of(option.widget.window().palette())
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_back(painter, option, theme, is_selected)
        area = option.rect.adjusted(PAD_X, PAD_Y, -PAD_X, -PAD_Y)
        line_height = option.fontMetrics.height()
        when = short_moment(hit.when, date.today())
        small = _small(option.font)
        when_width = QFontMetrics(small).horizontalAdvance(when)
        painter.setFont(small)
        painter.setPen(QColor(theme.selection_text if is_selected else theme.muted))
        top_line = QRect(area.left(), area.top(), area.width(), line_height)
        painter.drawText(top_line, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, when)
        bold = QFont(option.font)
        bold.setWeight(QFont.Weight.DemiBold)
        text_colour = theme.selection_text if is_selected else theme.text
        title = hit.title or NEW_CHAT_TITLE
        room = area.width() - when_width - 8
        if hit.message_id is None:
            self._paint_text(
                painter,
                QRectF(top_line),
                room,
                bold,
                title,
                hit.snippet.marks,
                text_colour,
                theme,
                1,
                is_selected,
            )
        else:
            self._paint_text(
                painter, QRectF(top_line), room, bold, title, (), text_colour, theme, 1, is_selected
            )
            who = "You: " if hit.role == "user" else ""
            below = QRectF(area.left(), area.top() + line_height + GAP, area.width(), area.height())
            marks = [TextSpan(start + len(who), end + len(who)) for start, end in hit.snippet.marks]
            colour = theme.selection_text if is_selected else theme.muted
            self._paint_text(
                painter,
                below,
                area.width(),
                option.font,
                who + hit.snippet.text,
                marks,
                colour,
                theme,
                SNIPPET_LINES,
                is_selected,
            )
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        hit: SearchHit = index.data(_HIT_ROLE)
        lines = 1 if hit.message_id is None else 1 + SNIPPET_LINES
        gaps = GAP if lines > 1 else 0
        return QSize(80, lines * option.fontMetrics.height() + gaps + 2 * PAD_Y)

    def _paint_back(
        self, painter: QPainter, option: QStyleOptionViewItem, theme: Theme, is_selected: bool
    ) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        if is_selected or option.state & QStyle.StateFlag.State_MouseOver:
            painter.setBrush(QColor(theme.selection if is_selected else theme.bubble))
            painter.drawRoundedRect(QRectF(option.rect), 6, 6)
        if option.state & QStyle.StateFlag.State_HasFocus:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(theme.accent), 1.5))
            painter.drawRoundedRect(QRectF(option.rect).adjusted(1, 1, -1, -1), 6, 6)

    def _paint_text(
        self,
        painter: QPainter,
        rect: QRectF,
        width: int,
        font: QFont,
        text: str,
        marks: Iterable[TextSpan],
        colour: str,
        theme: Theme,
        max_lines: int,
        is_selected: bool,
    ) -> None:
        """As many lines as there is room for, the last one elided."""
        formats = [_mark_format(text, span, theme, is_selected) for span in marks]
        layout = _lay_out(text, font, formats, width, max_lines)
        last = layout.lineAt(layout.lineCount() - 1)
        if layout.lineCount() and last.textStart() + last.textLength() < utf16_length(text):
            rest = utf16_slice(text, last.textStart(), utf16_length(text))
            elided = QFontMetrics(font).elidedText(rest, Qt.TextElideMode.ElideRight, width)
            layout = _lay_out(
                utf16_slice(text, 0, last.textStart()) + elided, font, formats, width, max_lines
            )
        painter.setPen(QColor(colour))
        layout.draw(painter, rect.topLeft())


def _lay_out(
    text: str, font: QFont, formats: list[QTextLayout.FormatRange], width: int, max_lines: int
) -> QTextLayout:
    layout = QTextLayout(text, font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    length = utf16_length(text)
    for marked in formats:
        marked.length = max(0, min(marked.length, length - marked.start))
    layout.setFormats([marked for marked in formats if marked.length])
    layout.beginLayout()
    y = 0.0
    for _ in range(max_lines):
        line = layout.createLine()
        if not line.isValid():
            break
        line.setLineWidth(width)
        line.setPosition(QPointF(0, y))
        y += ceil(line.height())
    layout.endLayout()
    return layout


def _mark_format(text: str, span: TextSpan, theme: Theme, is_selected: bool) -> QTextLayout.FormatRange:
    marked = QTextLayout.FormatRange()
    marked.start, marked.length = utf16_length(text[: span.start]), utf16_length(text[span.start : span.end])
    char_format = QTextCharFormat()
    # On the colour of the selection the other one is hardly seen.
    char_format.setBackground(QColor(theme.current_match if is_selected else theme.match))
    char_format.setForeground(QColor(theme.current_match_text if is_selected else theme.match_text))
    marked.format = char_format
    return marked


def _small(font: QFont) -> QFont:
    small = QFont(font)
    small.setPointSizeF(font.pointSizeF() * 0.88) if font.pointSizeF() > 0 else small.setPixelSize(12)
    return small
