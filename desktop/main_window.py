"""The window: splits and menus only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import get_args

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QAction, QActionGroup, QCloseEvent, QKeySequence, QPaintEvent
from PySide6.QtWidgets import QMainWindow, QMenu, QSplitter, QVBoxLayout, QWidget

from desktop.chat.chat_panel import ChatPanel
from desktop.conversation_list.list_panel import ConversationListPanel
from desktop.gauges.gauge_strip import GaugeStrip
from desktop.notice_bar import NoticeBar
from desktop.settings import Theme

LIST_WIDTH_PX = 240
MIN_TEXT_WIDTH_PX = 420
TEXT_STEP = 0.1


class MainWindow(QMainWindow):
    """Closing asks to quit and hides nothing itself: what happens then is the app's."""

    quit_requested = Signal()
    painted_first = Signal()
    new_private_chat_requested = Signal()
    open_model_requested = Signal()
    import_requested = Signal()
    import_folder_requested = Signal()
    export_chat_requested = Signal()
    export_all_requested = Signal()
    rename_requested = Signal()
    delete_requested = Signal()
    undo_requested = Signal()
    stop_requested = Signal()
    search_requested = Signal()
    chat_settings_requested = Signal()
    theme_chosen = Signal(str)

    def __init__(
        self,
        chat_list: ConversationListPanel,
        list_actions: Sequence[QAction],
        chat: ChatPanel,
        gauges: GaugeStrip,
        notices: NoticeBar,
    ) -> None:
        """list_actions: what else one can do to the chats that are marked in the list."""
        super().__init__()
        self.setWindowTitle("Everwarm")
        self._chat_list = chat_list
        self._chat = chat
        self._has_painted = False
        middle = QWidget()
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(notices)
        column.addWidget(chat, 1)
        middle.setMinimumWidth(MIN_TEXT_WIDTH_PX)
        self._splitter = splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.setChildrenCollapsible(False)
        splitter.setHandleWidth(1)
        splitter.addWidget(chat_list)
        splitter.addWidget(middle)
        splitter.setStretchFactor(0, 0)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([LIST_WIDTH_PX, 1100 - LIST_WIDTH_PX])
        self.setCentralWidget(splitter)
        self.statusBar().setSizeGripEnabled(False)
        self.statusBar().addPermanentWidget(gauges, 1)
        self._undo = QAction("&Undo in Chat List", self)
        self._fill_menus(list_actions)
        # Qt keeps an order only between widgets of one window, so it is set once all are in it.
        stops = (
            chat.composer,
            chat.transcript,
            chat.picker,
            chat.settings_button,
            chat_list.search_field,
            chat_list.new_chat_button,
            chat_list.view,
            chat.composer.context_count,
        )
        for stop, following in pairwise(stops):
            self.setTabOrder(stop, following)
        self.resize(1100, 720)

    def add_side_panel(self, panel: QWidget) -> None:
        """To the right of the chat; it comes hidden."""
        panel.hide()
        self._splitter.addWidget(panel)

    def set_undo_available(self, available: bool) -> None:
        self._undo.setEnabled(available)

    def show_theme(self, choice: Theme) -> None:
        for action in self._themes.actions():
            action.setChecked(action.data() == choice)

    def come_to_front(self) -> None:
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def closeEvent(self, event: QCloseEvent) -> None:
        event.ignore()
        self.quit_requested.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._has_painted:
            self._has_painted = True
            # After this event the picture is on its way to the screen.
            QTimer.singleShot(0, self.painted_first.emit)

    def _fill_menus(self, list_actions: Sequence[QAction]) -> None:
        file_menu = self.menuBar().addMenu("&File")
        self._add(
            file_menu, "&New Chat", QKeySequence.StandardKey.New, self._chat_list.new_chat_requested.emit
        )
        self._add(
            file_menu,
            "New &Private Chat",
            QKeySequence("Ctrl+Shift+N"),
            self.new_private_chat_requested.emit,
        )
        self._add(file_menu, "&Open GGUF…", QKeySequence.StandardKey.Open, self.open_model_requested.emit)
        file_menu.addSeparator()
        self._add(file_menu, "&Import Chats…", QKeySequence("Ctrl+Shift+I"), self.import_requested.emit)
        self._add(file_menu, "Import a &Folder of Chats…", QKeySequence(), self.import_folder_requested.emit)
        self._add(
            file_menu, "&Export This Chat…", QKeySequence("Ctrl+Shift+E"), self.export_chat_requested.emit
        )
        self._add(file_menu, "Export &All Chats…", QKeySequence(), self.export_all_requested.emit)
        file_menu.addSeparator()
        # StandardKey.Quit has no key on Windows.
        quit_action = self._add(file_menu, "&Quit", QKeySequence("Ctrl+Q"), self.quit_requested.emit)
        quit_action.setMenuRole(QAction.MenuRole.QuitRole)

        edit_menu = self.menuBar().addMenu("&Edit")
        self._undo.setShortcut(QKeySequence.StandardKey.Undo)
        self._undo.triggered.connect(self.undo_requested)
        self._undo.setEnabled(False)
        edit_menu.addAction(self._undo)
        rename = self._add(
            edit_menu, "&Rename Chat or Folder", QKeySequence("F2"), self.rename_requested.emit
        )
        self._chat_list.view.addAction(rename)
        delete = self._add(edit_menu, "&Delete", QKeySequence("Del"), self.delete_requested.emit)
        # Del deletes a chat only where the list has the focus; everywhere else it deletes text.
        delete.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._chat_list.view.addAction(delete)
        edit_menu.addActions(list_actions)
        edit_menu.addSeparator()
        find = self._chat.find_bar
        self._add(edit_menu, "&Find in Chat…", QKeySequence.StandardKey.Find, find.open_bar)
        self._add(edit_menu, "Find Ne&xt", QKeySequence("F3"), find.go_next)
        self._add(edit_menu, "Find Pre&vious", QKeySequence("Shift+F3"), find.go_previous)
        self._add(edit_menu, "Sear&ch All Chats…", QKeySequence("Ctrl+Shift+F"), self.search_requested.emit)
        edit_menu.addSeparator()
        # Escape stays with menus, dialogs and editors wherever they are open.
        self._add(edit_menu, "&Stop Reply", QKeySequence("Esc"), self.stop_requested.emit)

        view_menu = self.menuBar().addMenu("&View")
        self._add(view_menu, "Next Chat", QKeySequence("Ctrl+PgDown"), self._chat_list.view.open_next)
        self._add(view_menu, "Previous Chat", QKeySequence("Ctrl+PgUp"), self._chat_list.view.open_previous)
        self._add(view_menu, "Go to Message &Box", QKeySequence("Ctrl+L"), self._chat.composer.setFocus)
        self._add(view_menu, "Go to &Chats", QKeySequence("Ctrl+K"), self._chat_list.view.setFocus)
        self._add(view_menu, "Choose &Model", QKeySequence("Ctrl+M"), self._chat.picker.showMenu)
        self._add(view_menu, "Chat &Settings", QKeySequence("Ctrl+,"), self.chat_settings_requested.emit)
        view_menu.addSeparator()
        transcript = self._chat.transcript
        for text, key, change in (
            ("&Larger Text", QKeySequence.StandardKey.ZoomIn, TEXT_STEP),
            ("&Smaller Text", QKeySequence.StandardKey.ZoomOut, -TEXT_STEP),
        ):
            self._add(view_menu, text, key, partial(self._change_text_size, change))
        self._add(view_menu, "N&ormal Text", QKeySequence("Ctrl+0"), partial(transcript.set_font_scale, 1.0))
        view_menu.addSeparator()
        self._fill_theme_menu(view_menu.addMenu("&Theme"))

    def _fill_theme_menu(self, menu: QMenu) -> None:
        self._themes = QActionGroup(self)
        for choice in get_args(Theme):
            action = menu.addAction(f"&{choice.capitalize()}")
            action.setCheckable(True)
            action.setData(choice)
            action.triggered.connect(lambda _checked=False, choice=choice: self.theme_chosen.emit(choice))
            self._themes.addAction(action)

    def _change_text_size(self, change: float) -> None:
        transcript = self._chat.transcript
        transcript.set_font_scale(transcript.font_scale() + change)

    def _add(
        self, menu: QMenu, text: str, key: QKeySequence | QKeySequence.StandardKey, run: Callable[[], object]
    ) -> QAction:
        action = menu.addAction(text)
        action.setShortcut(key)
        action.triggered.connect(lambda _checked=False: run())
        return action
