"""The left side of the window: new chat, then the chats."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QToolButton, QVBoxLayout, QWidget

from desktop.conversation_list.list_view import ConversationListView
from desktop.icons import tinted_icon
from desktop.theme import theme_of


class ConversationListPanel(QWidget):
    new_chat_requested = Signal()

    def __init__(self, view: ConversationListView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversation_list_panel")
        self.view = view
        self.new_chat_button = QToolButton()
        self.new_chat_button.setText("New chat")
        self.new_chat_button.setObjectName("new_chat_button")
        self.new_chat_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.new_chat_button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.new_chat_button.setToolTip("Start a new chat (Ctrl+N)")
        self.new_chat_button.clicked.connect(self.new_chat_requested)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 8, 8, 8)
        column.setSpacing(8)
        column.addWidget(self.new_chat_button)
        column.addWidget(view, 1)
        self._tint()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        self.new_chat_button.setIcon(tinted_icon("new-chat", theme_of(self.palette())))
