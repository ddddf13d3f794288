"""What one can do to the chats that are marked in the list, as entries for its menu and for the window's."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu

from desktop.conversation_list.list_model import ConversationListModel
from desktop.conversation_list.list_view import ConversationListView
from desktop.wording import plain_menu_text


class ConversationListMenu(QObject):
    """Several chats are changed together."""

    top_requested = Signal(object, bool)
    """list[ConversationId], whether they are listed first from now on"""
    archive_requested = Signal(object, bool)
    """list[ConversationId], whether they are put away or brought back"""
    move_requested = Signal(object, object)
    """list[ConversationId], FolderId | None"""
    new_folder_requested = Signal(object)
    """list[ConversationId]: they go into it"""

    def __init__(self, model: ConversationListModel, view: ConversationListView) -> None:
        super().__init__(view)
        self._model = model
        self._view = view
        self.top = self._action("Pin to &Top", "Ctrl+T", self._ask_for_top)
        self.top.setCheckable(True)
        self.archive = self._action("&Archive", "Ctrl+Shift+A", self._ask_to_archive)
        self.folders = QMenu("Move to &Folder", view)
        self.folders.aboutToShow.connect(self._fill_folders)
        self.new_folder = self._action("Ne&w Folder", "Ctrl+Shift+D", self._ask_for_folder)
        self.actions = [self.top, view.pin_action, self.archive, self.folders.menuAction(), self.new_folder]
        for action in self.actions:
            if action is not view.pin_action:
                view.addAction(action)
        selection = view.selectionModel()
        for changed in (
            selection.currentChanged,
            selection.selectionChanged,
            model.dataChanged,
            model.rowsRemoved,
        ):
            changed.connect(self._show_state)
        self._show_state()

    def _action(self, text: str, key: str, act: object) -> QAction:
        action = QAction(text, self)
        action.setShortcut(QKeySequence(key))
        action.triggered.connect(act)
        return action

    def _show_state(self) -> None:
        chats = self._view.selected_conversations
        for action in (self.top, self.archive, self.folders.menuAction()):
            action.setEnabled(bool(chats))
        self.top.setChecked(bool(chats) and all(chat.is_on_top for chat in chats))
        is_archived = bool(chats) and all(chat.is_archived for chat in chats)
        self.archive.setText("Bring Back from &Archive" if is_archived else "&Archive")

    def _ask_for_top(self) -> None:
        chats = self._view.selected_conversations
        if chats:
            self.top_requested.emit([chat.id for chat in chats], not all(chat.is_on_top for chat in chats))
        # The list shows what is on disk, and is not yet.
        self._show_state()

    def _ask_to_archive(self) -> None:
        chats = self._view.selected_conversations
        if chats:
            is_archived = all(chat.is_archived for chat in chats)
            self.archive_requested.emit([chat.id for chat in chats], not is_archived)

    def _ask_for_folder(self) -> None:
        # From the keyboard it is made for what is marked on purpose, which one chat that is merely open is not.
        chats = self._view.selected_conversations
        self.new_folder_requested.emit([chat.id for chat in chats] if len(chats) > 1 else [])

    def _fill_folders(self) -> None:
        self.folders.clear()
        chats = self._view.selected_conversations
        ids = [chat.id for chat in chats]
        inside = {chat.folder_id for chat in chats}
        for folder in self._model.folders:
            action = self.folders.addAction(plain_menu_text(folder.name))
            action.setCheckable(True)
            action.setChecked(inside == {folder.id})
            action.triggered.connect(partial(self.move_requested.emit, ids, folder.id))
        if self._model.folders:
            self.folders.addSeparator()
        out = self.folders.addAction("&No Folder", partial(self.move_requested.emit, ids, None))
        out.setEnabled(inside != {None})
        self.folders.addAction("In a New &Folder", partial(self.new_folder_requested.emit, ids))
