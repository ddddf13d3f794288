"""The list of chats in the whole window: groups, several at once, folders, archive; with keys and with the mouse."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit

from desktop.conversation_list.list_model import ConversationRole
from desktop.conversations import ConversationStore, create_folder, read_listing
from tests.desktop.running_window import RunningWindow, until

SHIFT, CTRL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier


def prepared(
    window: RunningWindow, titles: Sequence[str] = ("Three", "Two", "One"), folder: str = ""
) -> RunningWindow:
    """The chats stand in the list as they do in `titles`."""
    window.paths.prepare()
    with contextlib.closing(ConversationStore.open(window.paths.database)) as store:
        for title in reversed(titles):
            chat = store.create_conversation(title)
            store.add_user_message(chat.id, f"About {title}", None)
        if folder:
            create_folder(store, folder)
    return window


def index_of(window: RunningWindow, text: str) -> QModelIndex:
    model = window.everwarm.list_model
    return next(model.index(row) for row in range(model.rowCount()) if model.index(row).data() == text)


def click(
    window: RunningWindow, text: str, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    view = window.everwarm.list_view
    point = view.visualRect(index_of(window, text)).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, modifier, point)


async def open_chat(window: RunningWindow, title: str) -> None:
    click(window, title)
    await until(lambda: window.texts == [f"About {title}"])
    await until(lambda: window.everwarm.list_view.current_id == window.everwarm.open_chat.id)


def press(
    window: RunningWindow, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    view = window.everwarm.list_view
    view.setFocus()
    QTest.keyClick(view, key, modifier)


def rename(window: RunningWindow, name: str) -> None:
    # One that was closed a moment ago is still there.
    editor = window.everwarm.list_view.findChildren(QLineEdit)[-1]
    editor.selectAll()
    QTest.keyClicks(editor, name)
    QTest.keyClick(editor, Qt.Key.Key_Return)


async def test_chats_stand_under_their_day_and_arrows_pass_the_headings(window: RunningWindow) -> None:
    async with prepared(window):
        assert window.list_rows == ["— Today", "Three", "Two", "One"]
        await open_chat(window, "One")
        for _ in range(5):
            press(window, Qt.Key.Key_Up)
        await until(lambda: window.texts == ["About Three"])


async def test_a_chat_on_top_comes_first_and_goes_back(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "One")
        press(window, Qt.Key.Key_T, CTRL)
        await until(lambda: window.list_rows == ["— Pinned", "One", "— Today", "Three", "Two"])
        assert window.everwarm.list_side.menu.top.isChecked()
        # The memory store is another matter.
        assert window.engine.pins == ()
        press(window, Qt.Key.Key_T, CTRL)
        await until(lambda: window.list_rows == ["— Today", "Three", "Two", "One"])


async def test_several_marked_with_shift_are_deleted_with_one_key_and_come_back_with_one(
    window: RunningWindow,
) -> None:
    async with prepared(window):
        await open_chat(window, "Three")
        click(window, "Two", SHIFT)
        assert window.texts == ["About Three"]
        press(window, Qt.Key.Key_Delete)
        await until(lambda: window.list_rows == ["— Today", "One"])
        await until(lambda: window.texts == ["About One"])
        assert window.notice("deleted") == "Deleted 2 chats"
        press(window, Qt.Key.Key_Z, CTRL)
        await until(lambda: window.list_rows == ["— Today", "Three", "Two", "One"])
        assert window.notice("deleted") == ""


async def test_several_marked_with_control_are_archived_and_brought_back(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "Three")
        click(window, "One", CTRL)
        press(window, Qt.Key.Key_A, CTRL | SHIFT)
        await until(lambda: window.list_rows == ["— Today", "Two", "— Archive (2)"])
        await until(lambda: window.texts == ["About Two"])
        assert window.notice("deleted") == "Archived 2 chats"
        window.everwarm.list_actions.undo()
        await until(lambda: window.list_rows == ["— Today", "Three", "Two", "One"])


async def test_the_archive_unfolds_and_gives_back(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "Two")
        press(window, Qt.Key.Key_A, CTRL | SHIFT)
        await until(lambda: window.list_rows == ["— Today", "Three", "One", "— Archive (1)"])
        await open_chat(window, "One")
        press(window, Qt.Key.Key_Down)
        press(window, Qt.Key.Key_Right)
        assert window.list_rows[-2:] == ["— Archive (1)", "Two"]
        await open_chat(window, "Two")
        assert window.everwarm.list_side.menu.archive.text() == "Bring Back from &Archive"
        press(window, Qt.Key.Key_A, CTRL | SHIFT)
        await until(lambda: window.list_rows == ["— Today", "Three", "Two", "One"])


async def test_marked_chats_stay_marked_when_the_list_is_read_again(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "Three")
        press(window, Qt.Key.Key_Down, SHIFT)
        await window.everwarm.list_actions.reload()
        chats = window.everwarm.list_view.selected_conversations
        assert [chat.title for chat in chats] == ["Three", "Two"]


async def test_a_folder_is_made_named_filled_and_folded_with_keys(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "Three")
        click(window, "Two", CTRL)
        press(window, Qt.Key.Key_D, CTRL | SHIFT)
        await until(lambda: window.everwarm.list_view.findChild(QLineEdit) is not None)
        rename(window, "Work")
        await until(lambda: window.list_rows == ["— Work (2)", "Three", "Two", "— Today", "One"])
        heading = index_of(window, "Work")
        assert heading.data(Qt.ItemDataRole.AccessibleTextRole) == "Folder Work, 2 chats, unfolded"
        window.everwarm.list_view.setCurrentIndex(heading)
        press(window, Qt.Key.Key_Return)
        assert window.list_rows == ["— Work (2)", "— Today", "One"]
        press(window, Qt.Key.Key_Right)
        assert window.list_rows[1] == "Three"


async def test_the_menu_moves_to_a_folder_and_out_of_it(window: RunningWindow) -> None:
    async with prepared(window, folder="R&D"):
        await open_chat(window, "Two")
        menu = window.everwarm.list_side.menu.folders
        menu.aboutToShow.emit()
        entries = {action.text(): action for action in menu.actions()}
        assert not entries["&No Folder"].isEnabled()
        entries["R&&D"].trigger()
        await until(lambda: window.list_rows == ["— R&D (1)", "Two", "— Today", "Three", "One"])
        await until(lambda: window.everwarm.list_view.current_id == window.everwarm.open_chat.id)
        assert window.notice("deleted") == "Moved “Two” to “R&D”"
        menu.aboutToShow.emit()
        entries = {action.text(): action for action in menu.actions()}
        assert entries["R&&D"].isChecked()
        entries["&No Folder"].trigger()
        await until(lambda: window.list_rows == ["— R&D (0)", "— Today", "Three", "Two", "One"])
        for expected in ("— R&D (1)", "— R&D (0)"):
            window.everwarm.list_actions.undo()
            await until(lambda expected=expected: window.list_rows[0] == expected)


async def test_chats_are_dragged_into_a_folder_to_the_archive_and_out(window: RunningWindow) -> None:
    async with prepared(window, folder="Work"):
        model = window.everwarm.list_model
        dragged = model.mimeData([index_of(window, "Three"), index_of(window, "One")])

        def drop_on(text: str) -> None:
            target = index_of(window, text)
            assert model.flags(target) & Qt.ItemFlag.ItemIsDropEnabled
            assert model.dropMimeData(dragged, Qt.DropAction.CopyAction, -1, -1, target)

        drop_on("Work")
        await until(lambda: window.list_rows == ["— Work (2)", "Three", "One", "— Today", "Two"])
        drop_on("Two")
        await until(lambda: window.list_rows == ["— Work (0)", "— Today", "Three", "Two", "One"])
        await window.everwarm.list_actions.archive([window.everwarm.list_model.chats[1].id], True)
        drop_on("Archive")
        await until(lambda: window.list_rows == ["— Work (0)", "— Archive (3)"])


async def test_deleting_a_folder_leaves_its_chats_and_can_be_taken_back(window: RunningWindow) -> None:
    async with prepared(window, folder="Work"):
        ids = [chat.id for chat in window.everwarm.list_model.chats[:2]]
        folder = window.everwarm.list_model.folders[0]
        await window.everwarm.list_actions.move(ids, folder.id)
        window.everwarm.list_view.setFocus()
        window.everwarm.list_view.selectionModel().clear()
        window.everwarm.list_view.setCurrentIndex(index_of(window, "Work"))
        press(window, Qt.Key.Key_Delete)
        await until(lambda: window.list_rows == ["— Today", "Three", "Two", "One"])
        assert "still here" in window.notice("deleted")
        window.everwarm.list_actions.undo()
        await until(lambda: window.list_rows == ["— Work (2)", "Three", "Two", "— Today", "One"])


async def test_f2_renames_a_folder_and_an_empty_name_is_none(window: RunningWindow) -> None:
    async with prepared(window, folder="Work"):
        window.everwarm.list_view.setCurrentIndex(index_of(window, "Work"))
        for typed, expected in (("  ", "— Work (0)"), (" Home   office ", "— Home office (0)")):
            window.everwarm.list_view.rename_current()
            rename(window, typed)
            await until(lambda expected=expected: window.list_rows[0] == expected)


async def test_opening_a_chat_that_is_folded_away_shows_it_in_the_list(window: RunningWindow) -> None:
    async with prepared(window):
        chat = window.everwarm.list_model.chats[1]
        await window.everwarm.list_actions.archive([chat.id], True)
        assert "Two" not in window.list_rows
        await window.everwarm.open_chat.open(chat.id)
        assert window.list_rows[-2:] == ["— Archive (1)", "Two"]
        assert window.everwarm.list_view.current_id == chat.id


async def test_a_click_on_a_day_does_nothing(window: RunningWindow) -> None:
    async with prepared(window):
        await open_chat(window, "Two")
        click(window, "Today")
        assert not index_of(window, "Today").flags() & Qt.ItemFlag.ItemIsSelectable
        assert [chat.title for chat in window.everwarm.list_view.selected_conversations] == ["Two"]
        view = window.everwarm.list_view
        assert view.indexAt(QPoint(10, view.height() - 2)).data(ConversationRole.HEADING) is None


async def test_what_is_in_a_folder_is_there_after_a_restart(window: RunningWindow) -> None:
    async with prepared(window, folder="Work"):
        chats, folders = window.everwarm.list_model.chats, window.everwarm.list_model.folders
        await window.everwarm.list_actions.move([chats[0].id], folders[0].id)
        await window.quit()
        with contextlib.closing(ConversationStore.open(window.paths.database)) as store:
            stored = read_listing(store)
            assert [chat.folder_id for chat in stored.conversations] == [folders[0].id, None, None]
