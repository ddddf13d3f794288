"""The left side of the window: search, new chat, then the chats or what was found in them."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QLabel, QSizePolicy, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from desktop.conversation_list.list_view import ConversationListView
from desktop.conversation_list.search_field import SearchField
from desktop.conversation_list.search_results import SearchResultsModel, SearchResultsView
from desktop.conversations import SearchResults
from desktop.icons import tinted_icon
from desktop.theme import theme_of


class ConversationListPanel(QWidget):
    new_chat_requested = Signal()
    left_search = Signal()

    def __init__(self, view: ConversationListView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("conversation_list_panel")
        self.view = view
        self.search_field = SearchField()
        self.results = SearchResultsView(SearchResultsModel())
        self.results_words = QLabel()
        self.results_words.setObjectName("search_words")
        self.results_words.setTextFormat(Qt.TextFormat.PlainText)
        self.results_words.setWordWrap(True)
        self._results_page = QWidget()
        results_column = QVBoxLayout(self._results_page)
        results_column.setContentsMargins(0, 0, 0, 0)
        results_column.setSpacing(8)
        results_column.addWidget(self.results_words)
        results_column.addWidget(self.results, 1)
        self._pages = QStackedWidget()
        self._pages.addWidget(view)
        self._pages.addWidget(self._results_page)
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
        column.addWidget(self.search_field)
        column.addWidget(self.new_chat_button)
        column.addWidget(self._pages, 1)
        self._tint()

    @property
    def shows_results(self) -> bool:
        return self._pages.currentWidget() is self._results_page

    def show_results(self, results: SearchResults, words: str) -> None:
        """words: above the results, or in their place."""
        self.results.show_results(results)
        self.results_words.setText(words)
        self.results_words.setVisible(bool(words))
        self._pages.setCurrentWidget(self._results_page)

    def show_list(self) -> None:
        self.results.show_results(SearchResults(()))
        self._pages.setCurrentWidget(self.view)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        self.new_chat_button.setIcon(tinted_icon("new-chat", theme_of(self.palette())))
