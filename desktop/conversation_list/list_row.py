"""How a row of the list at the left is painted: a chat with its marks, or a heading."""

from __future__ import annotations

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPalette, QPen
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop.chat.private_mark import LOCK
from desktop.conversation_list.list_model import ConversationRole, Index
from desktop.conversation_list.list_sections import Heading
from desktop.icons import icon
from desktop.theme import Theme, theme_of

DOT_PX = 6
DOT_ROOM_PX = 16
ROW_PADDING_PX = 8
INDENT_PX = 16
STORE = "store"
MARK_SIZE = QSize(14, 14)
_FOLD_ICONS = {"folder": "folder", "archive": "archive"}


class ConversationDelegate(QStyledItemDelegate):
    def initStyleOption(self, option: QStyleOptionViewItem, index: Index) -> None:
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideRight
        mark = (
            LOCK
            if index.data(ConversationRole.PRIVATE)
            else STORE
            if index.data(ConversationRole.PINNED)
            else None
        )
        if mark is not None:
            option.features |= QStyleOptionViewItem.ViewItemFeature.HasDecoration
            # The style sheet makes the list transparent, and its palette tells no theme.
            theme = theme_of(option.widget.window().palette())
            is_selected = option.state & QStyle.StateFlag.State_Selected
            option.icon = icon(mark, theme.selection_text if is_selected else theme.muted)
            option.decorationSize = MARK_SIZE

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        heading = index.data(ConversationRole.HEADING)
        if heading is not None:
            self._paint_heading(painter, option, heading)
        else:
            if index.data(ConversationRole.INDENTED):
                option.rect.adjust(INDENT_PX, 0, 0, 0)
            super().paint(painter, option, index)
        if option.state & QStyle.StateFlag.State_HasFocus:
            self._paint_focus(painter, option)
        if index.data(ConversationRole.REPLYING):
            self._paint_dot(painter, option)

    def _paint_heading(self, painter: QPainter, option: QStyleOptionViewItem, heading: Heading) -> None:
        theme = theme_of(option.widget.window().palette())
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if heading.folds and (is_selected or option.state & QStyle.StateFlag.State_MouseOver):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(theme.selection if is_selected else theme.bubble))
            painter.drawRoundedRect(QRectF(option.rect), 6, 6)
        area = option.rect.adjusted(8, 0, -8, 0)
        if heading.folds:
            self._paint_fold(painter, area, option, heading, theme, is_selected)
        else:
            font = QFont(option.font)
            font.setPixelSize(12)
            font.setWeight(QFont.Weight.DemiBold)
            painter.setFont(font)
            painter.setPen(QColor(theme.muted))
            painter.drawText(
                area.adjusted(0, 0, 0, -4),
                Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom,
                heading.text,
            )
        painter.restore()

    def _paint_fold(
        self,
        painter: QPainter,
        area: QRect,
        option: QStyleOptionViewItem,
        heading: Heading,
        theme: Theme,
        is_selected: bool,
    ) -> None:
        """A chevron, an icon, the name, and how many chats are inside."""
        colour = theme.selection_text if is_selected else theme.muted
        middle, size = area.center().y() - MARK_SIZE.height() // 2 + 1, MARK_SIZE.width()
        chevron = "chevron-down" if heading.is_unfolded else "chevron-right"
        icon(chevron, colour).paint(painter, area.left() - 2, middle, size, size)
        icon(_FOLD_ICONS[heading.kind], colour).paint(painter, area.left() + 14, middle, size, size)
        painter.setFont(option.font)
        painter.setPen(QColor(colour))
        count = str(heading.count)
        count_width = option.fontMetrics.horizontalAdvance(count)
        painter.drawText(area, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, count)
        painter.setPen(QColor(theme.selection_text if is_selected else theme.text))
        room = area.adjusted(34, 0, -count_width - 8, 0)
        text = option.fontMetrics.elidedText(heading.text, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)

    def _paint_focus(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(option.palette.color(QPalette.ColorRole.Accent), 1.5))
        painter.drawRoundedRect(QRectF(option.rect).adjusted(1, 1, -1, -1), 6, 6)
        painter.restore()

    def _paint_dot(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        center = option.rect.center()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(option.palette.brush(QPalette.ColorRole.Accent))
        painter.drawEllipse(
            QRect(option.rect.right() - DOT_ROOM_PX, center.y() - DOT_PX // 2, DOT_PX, DOT_PX)
        )
        painter.restore()

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        # A reply that ends meanwhile changes the row, which must not undo what is being typed.
        if not (isinstance(editor, QLineEdit) and editor.isModified()):
            super().setEditorData(editor, index)

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        is_inside = index.data(ConversationRole.INDENTED) or index.data(ConversationRole.HEADING) is not None
        editor.setGeometry(option.rect.adjusted(3 + (INDENT_PX if is_inside else 0), 3, -3, -3))

    def sizeHint(self, option: QStyleOptionViewItem, index: Index):  # type: ignore[no-untyped-def]
        # The same for headings: thousands of rows are then placed without being asked one by one.
        size = super().sizeHint(option, index)
        size.setHeight(option.fontMetrics.height() + 2 * ROW_PADDING_PX)
        return size
