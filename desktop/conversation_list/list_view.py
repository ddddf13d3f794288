"""The list at the left: opens on a click or Enter, renames in place, marks several, folds folders away."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QAction, QFocusEvent, QKeyEvent, QKeySequence, QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QWidget

from desktop.conversation_list.list_model import ConversationListModel
from desktop.conversation_list.list_row import ConversationDelegate
from desktop.conversation_list.list_sections import Heading
from desktop.conversations import Conversation, ConversationId

_TURN_KEYS = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space)
_EXTENDING = Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier


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
        self._extending = False
        self.setModel(model)
        self.setItemDelegate(ConversationDelegate(self))
        self.setUniformItemSizes(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDefaultDropAction(Qt.DropAction.CopyAction)
        self.setDragDropOverwriteMode(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        self.pin_action = self._make_pin_action()
        self.addAction(self.pin_action)
        self.clicked.connect(self._clicked)
        self.activated.connect(self._open_marked)
        self.selectionModel().currentChanged.connect(self._current_changed)
        for changed in (self.selectionModel().currentChanged, model.dataChanged, model.rowsRemoved):
            changed.connect(self._show_pin)
        self._show_pin()

    @property
    def current_id(self) -> ConversationId | None:
        conversation = self._conversations.conversation(self.currentIndex().row())
        return None if conversation is None else conversation.id

    @property
    def current_heading(self) -> Heading | None:
        return self._conversations.heading(self.currentIndex().row())

    @property
    def selected_conversations(self) -> list[Conversation]:
        """From the top down; the current one if none is marked."""
        rows = sorted(index.row() for index in self.selectionModel().selectedRows())
        found = [chat for row in rows if (chat := self._conversations.conversation(row)) is not None]
        current = self._conversations.conversation(self.currentIndex().row())
        return found or ([] if current is None or self.current_heading is not None else [current])

    def select(self, conversation_id: ConversationId | None) -> None:
        """Mark the open chat; None: a new chat that is not in the list yet. Emits nothing."""
        marked = {chat.id for chat in self.selected_conversations}
        if len(marked) > 1 and conversation_id in marked:
            return  # others were added to it while it was read from the disk
        if self.state() == QAbstractItemView.State.EditingState:
            return  # what is being typed would be lost
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

    def show_opened(self, conversation_id: ConversationId | None) -> None:
        """As select; a chat that is folded away comes to sight."""
        if conversation_id is not None:
            self._conversations.unfold_for(conversation_id)
        self.select(conversation_id)

    def select_again(self, conversation_id: ConversationId | None) -> None:
        """As select, but several chats that are marked stay marked, and so does a folder that one has gone to."""
        if len(self.selectionModel().selectedRows()) < 2 and self.current_heading is None:
            self.select(conversation_id)

    def focusInEvent(self, event: QFocusEvent) -> None:
        # Without a current row Qt takes the first one, which is no wish to open that chat.
        self._selecting = True
        try:
            super().focusInEvent(event)
        finally:
            self._selecting = False

    def open_next(self) -> None:
        self._open_row(self.currentIndex().row() + 1, 1)

    def open_previous(self) -> None:
        self._open_row(self.currentIndex().row() - 1, -1)

    def rename_current(self) -> None:
        if self.currentIndex().isValid():
            self.setFocus()
            self.edit(self.currentIndex())

    def rename_row(self, key: object) -> None:
        """Of a chat or a heading, as a folder that was just made."""
        if (row := self._conversations.row_of(key)) is not None:
            self.selectionModel().clear()
            self.setCurrentIndex(self._conversations.index(row))
            self.rename_current()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        # With Shift or Control one marks several and opens none.
        self._extending = bool(event.modifiers() & _EXTENDING)
        try:
            super().mousePressEvent(event)
        finally:
            self._extending = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        heading = self.current_heading
        # Enter in an editor reaches the list too.
        is_editing = self.state() == QAbstractItemView.State.EditingState
        if heading is not None and heading.folds and not is_editing:
            turns = event.key() in _TURN_KEYS
            turns |= event.key() == Qt.Key.Key_Right and not heading.is_unfolded
            turns |= event.key() == Qt.Key.Key_Left and heading.is_unfolded
            if turns:
                self._conversations.turn(heading)
                return
        self._extending = bool(event.modifiers() & _EXTENDING)
        try:
            super().keyPressEvent(event)
        finally:
            self._extending = False

    def _make_pin_action(self) -> QAction:
        """For the menu of the list, and for others: it acts on the chat marked in the list."""
        action = QAction("&Keep in Memory Store", self)
        action.setShortcut(QKeySequence("Ctrl+D"))
        action.setCheckable(True)
        action.setToolTip("What the model has read of this chat is never removed to make room")
        action.triggered.connect(self._ask_to_pin)
        return action

    def _ask_to_pin(self, is_pinned: bool) -> None:
        for conversation in self.selected_conversations:
            if not conversation.is_private:
                self.pin_requested.emit(conversation.id, is_pinned)
        # The list shows what is on disk, and is not yet.
        self._show_pin()

    def _show_pin(self) -> None:
        conversation = self._conversations.conversation(self.currentIndex().row())
        # Of a private chat nothing is stored.
        self.pin_action.setEnabled(conversation is not None and not conversation.is_private)
        self.pin_action.setChecked(conversation is not None and conversation.is_pinned)

    def _open_row(self, row: int, step: int) -> None:
        """The chat of that row, or the next one in that direction; at the upper end the first one."""
        if row < 0 or not self.currentIndex().isValid():
            row, step = 0, 1
        while 0 <= row < self._conversations.rowCount():
            if self._conversations.conversation(row) is not None:
                # Said explicitly: with Control held the view would add it to what is marked.
                self.selectionModel().setCurrentIndex(
                    self._conversations.index(row), QItemSelectionModel.SelectionFlag.ClearAndSelect
                )
                return
            row += step

    def _clicked(self, index: QModelIndex) -> None:
        heading = self._conversations.heading(index.row())
        if heading is None:
            if len(self.selectionModel().selectedRows()) == 1:
                self.chosen.emit()
        elif heading.folds:
            self._conversations.turn(heading)

    def _open_marked(self, index: QModelIndex) -> None:
        """Enter, also on the row that was marked for want of an open chat."""
        if self._conversations.conversation(index.row()) is None:
            return
        if not self.selectionModel().isSelected(index):
            self.setCurrentIndex(QModelIndex())
            self.setCurrentIndex(index)
        self.chosen.emit()

    def _current_changed(self, current: QModelIndex, _previous: QModelIndex) -> None:
        conversation = self._conversations.conversation(current.row())
        if conversation is not None and not self._selecting and not self._extending:
            self.opened.emit(conversation.id)
