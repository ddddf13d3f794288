"""The left side of the window, wired: the list of chats, what one does to it, and the search."""

from __future__ import annotations

from PySide6.QtCore import QObject

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.chat_panel import ChatPanel
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn_queue import TurnQueue
from desktop.conversation_list.chat_search import ChatSearch
from desktop.conversation_list.list_actions import ConversationListActions
from desktop.conversation_list.list_menu import ConversationListMenu
from desktop.conversation_list.list_model import ConversationListModel
from desktop.conversation_list.list_panel import ConversationListPanel
from desktop.conversation_list.list_view import ConversationListView
from desktop.notice_bar import NoticeBar


class ConversationListSide(QObject):
    def __init__(
        self,
        panel: ChatPanel,
        open_chat: OpenChat,
        chats: ConversationTasks,
        turns: TurnQueue,
        notices: NoticeBar,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self.model = ConversationListModel()
        self.view = ConversationListView(self.model)
        self.panel = ConversationListPanel(self.view)
        self.actions = ConversationListActions(
            self.model, self.view, chats, turns, open_chat, notices, background
        )
        self.menu = ConversationListMenu(self.model, self.view)
        for requested, act in (
            (self.menu.top_requested, self.actions.set_on_top),
            (self.menu.archive_requested, self.actions.archive),
            (self.menu.move_requested, self.actions.move),
            (self.menu.new_folder_requested, self.actions.create_folder),
            (self.model.archive_requested, self.actions.archive),
        ):
            requested.connect(lambda *wanted, act=act: background.start(act(*wanted)))
        self.search = ChatSearch(self.panel, panel.transcript, open_chat, chats, turns, background)
        self.panel.new_chat_requested.connect(self.actions.new_chat)
        self.actions.reloaded.connect(self.search.chats_changed)
        self.search.told.connect(open_chat.told)
        for done in (self.panel.new_chat_requested, self.panel.left_search, self.view.chosen):
            done.connect(panel.composer.setFocus)

    def close(self) -> None:
        self.actions.close()
        self.search.close()
