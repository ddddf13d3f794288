"""The list at the left: opens on a click or Enter, renames in place, shows a dot where a reply is under way, a lock
before a private chat and a pin before one that is kept in the memory store."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAction, QFocusEvent, QKeySequence, QPainter, QPalette, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from desktop.chat.private_mark import LOCK
from desktop.conversation_list.list_model import ConversationListModel, ConversationRole, Index
from desktop.conversations import ConversationId
from desktop.icons import icon
from desktop.theme import theme_of

DOT_PX = 6
DOT_ROOM_PX = 16
ROW_PADDING_PX = 8
PIN = "pin"
MARK_SIZE = QSize(14, 14)


class ConversationDelegate(QStyledItemDelegate):
    def initStyleOption(self, option: QStyleOptionViewItem, index: Index) -> None:
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideRight
        mark = (
            LOCK
            if index.data(ConversationRole.PRIVATE)
            else PIN
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
        super().paint(painter, option, index)
        if option.state & QStyle.StateFlag.State_HasFocus:
            self._paint_focus(painter, option)
        if index.data(ConversationRole.REPLYING):
            self._paint_dot(painter, option)

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
        editor.setGeometry(option.rect.adjusted(3, 3, -3, -3))

    def sizeHint(self, option: QStyleOptionViewItem, index: Index):  # type: ignore[no-untyped-def]
        size = super().sizeHint(option, index)
        size.setHeight(option.fontMetrics.height() + 2 * ROW_PADDING_PX)
        return size


class ConversationListView(QListView):
    opened = Signal(object)
    """ConversationId"""
    pin_requested = Signal(object, bool)
    """ConversationId, whether to keep it in the memory store from now on"""
    chosen = Signal()
    """With the mouse or Enter: one wants to write there now. Arrow keys only look."""

    def __init__(self, model: ConversationListModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversation_list")
        self.setAccessibleName("Chats")
        self._conversations = model
        self._selecting = False
        self.setModel(model)
        self.setItemDelegate(ConversationDelegate(self))
        self.setUniformItemSizes(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        self.pin_action = self._make_pin_action()
        self.addAction(self.pin_action)
        self.clicked.connect(self.chosen)
        self.activated.connect(self._open_marked)
        self.activated.connect(self.chosen)
        self.selectionModel().currentChanged.connect(self._current_changed)
        for changed in (self.selectionModel().currentChanged, model.dataChanged, model.rowsRemoved):
            changed.connect(self._show_pin)
        self._show_pin()

    @property
    def current_id(self) -> ConversationId | None:
        conversation = self._conversations.conversation(self.currentIndex().row())
        return None if conversation is None else conversation.id

    def select(self, conversation_id: ConversationId | None) -> None:
        """Mark the open chat; None: a new chat that is not in the list yet. Emits nothing."""
        row = None if conversation_id is None else self._conversations.row_of(conversation_id)
        self._selecting = True
        try:
            if row is None:
                self.selectionModel().clear()
            else:
                self.selectionModel().setCurrentIndex(
                    self._conversations.index(row), QItemSelectionModel.SelectionFlag.ClearAndSelect
                )
        finally:
            self._selecting = False

    def focusInEvent(self, event: QFocusEvent) -> None:
        # Without a current row Qt takes the first one, which is no wish to open that chat.
        self._selecting = True
        try:
            super().focusInEvent(event)
        finally:
            self._selecting = False

    def open_next(self) -> None:
        self._open_row(self.currentIndex().row() + 1)

    def open_previous(self) -> None:
        self._open_row(self.currentIndex().row() - 1)

    def rename_current(self) -> None:
        if self.currentIndex().isValid():
            self.setFocus()
            self.edit(self.currentIndex())

    def _make_pin_action(self) -> QAction:
        """For the menu of the list, and for others: it acts on the chat marked in the list."""
        action = QAction("&Keep in Memory Store", self)
        action.setShortcut(QKeySequence("Ctrl+D"))
        action.setCheckable(True)
        action.setToolTip("What the model has read of this chat is never removed to make room")
        action.triggered.connect(self._ask_to_pin)
        return action

    def _ask_to_pin(self, is_pinned: bool) -> None:
        if (conversation_id := self.current_id) is not None:
            self.pin_requested.emit(conversation_id, is_pinned)
        # The list shows what is on disk, and is not yet.
        self._show_pin()

    def _show_pin(self) -> None:
        conversation = self._conversations.conversation(self.currentIndex().row())
        # Of a private chat nothing is stored.
        self.pin_action.setEnabled(conversation is not None and not conversation.is_private)
        self.pin_action.setChecked(conversation is not None and conversation.is_pinned)

    def _open_row(self, row: int) -> None:
        index = self._conversations.index(max(row, 0))
        if index.isValid():
            self.setCurrentIndex(index)

    def _open_marked(self, index: QModelIndex) -> None:
        """Enter on the row that was marked for want of an open chat."""
        if not self.selectionModel().isSelected(index):
            self.setCurrentIndex(QModelIndex())
            self.setCurrentIndex(index)

    def _current_changed(self, current: QModelIndex, _previous: QModelIndex) -> None:
        conversation = self._conversations.conversation(current.row())
        if conversation is not None and not self._selecting:
            self.opened.emit(conversation.id)
