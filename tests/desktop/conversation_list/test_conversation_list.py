"""The list of chats in the whole window: new, rename, delete, undo, selection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit

from desktop.conversation_list import list_actions
from desktop.conversation_list.list_model import ConversationListModel
from desktop.conversations import ConversationStore, NoSuchRecord
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished, reply


async def with_chats(window: RunningWindow, *titles: str) -> None:
    for title in titles:
        await window.everwarm.open_chat.open(None)
        window.engine.enqueue(reply("Sure."))
        await window.ask(title)
    await until(lambda: window.titles == list(reversed(titles)))


async def test_the_newest_chat_comes_first_and_is_marked(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        assert window.everwarm.list_view.current_id == window.everwarm.open_chat.id
        assert window.everwarm.list_view.currentIndex().data() == "Two"


async def test_a_chat_opens_when_one_goes_to_it(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        window.everwarm.list_view.open_next()
        await until(lambda: window.texts == ["One", "Sure."])


async def test_a_message_in_an_older_chat_brings_it_to_the_top(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        window.everwarm.list_view.open_next()
        await until(lambda: window.texts[:1] == ["One"])
        window.engine.enqueue(reply("Yes."))
        await window.ask("More")
        await until(lambda: window.titles == ["One", "Two"])
        assert window.everwarm.list_view.currentIndex() == window.chat_indexes[0]


async def test_f2_renames_in_place(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One")
        window.everwarm.list_view.rename_current()
        editor = window.everwarm.list_view.findChild(QLineEdit)
        assert editor is not None
        editor.selectAll()
        QTest.keyClicks(editor, "  My   first chat ")
        await window.everwarm.list_actions.reload()
        window.everwarm.list_model.dataChanged.emit(index := window.chat_indexes[0], index)
        QTest.keyClick(editor, Qt.Key.Key_Return)
        await until(lambda: window.titles == ["My first chat"])
        assert window.everwarm.panel.title == "My first chat"


async def test_an_empty_name_changes_nothing(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One")
        model: ConversationListModel = window.everwarm.list_model
        assert not model.setData(window.chat_indexes[0], "   ")
        assert window.titles == ["One"]


async def test_a_deleted_chat_can_be_brought_back(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        window.everwarm.list_view.setFocus()
        QTest.keyClick(window.everwarm.list_view, Qt.Key.Key_Delete)
        await until(lambda: window.titles == ["One"])
        await until(lambda: window.texts == ["One", "Sure."])
        await until(lambda: window.notice("deleted") == "Deleted “Two”")
        window.everwarm.list_actions.undo()
        await until(lambda: window.titles == ["Two", "One"])
        await until(lambda: window.texts == ["Two", "Sure."])
        assert window.notice("deleted") == ""


async def test_several_deleted_chats_come_back_one_by_one(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        for left in (["One"], []):
            window.everwarm.list_actions.delete_current()
            await until(lambda left=left: window.titles == left and window.texts[:1] == left)
        window.everwarm.list_actions.undo()
        await until(lambda: window.titles == ["One"])
        window.everwarm.list_actions.undo()
        await until(lambda: window.titles == ["Two", "One"])


async def test_a_deleted_chat_is_destroyed_at_the_next_start(
    make_window: Callable[[], RunningWindow],
) -> None:
    first = make_window()
    async with first:
        await with_chats(first, "One")
        gone = first.everwarm.open_chat.id
        assert gone is not None
        first.everwarm.list_actions.delete_current()
        await until(lambda: first.titles == [])
    second = make_window()
    async with second:
        with pytest.raises(NoSuchRecord):
            await second.everwarm.chats.run(ConversationStore.conversation, gone)


async def test_deleting_a_chat_stops_its_reply(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue([delta("Once"), Pause(), finished("never")])
        await window.send("Story")
        await until(lambda: window.texts[-1] == "Once")
        window.everwarm.list_actions.delete_current()
        await until(lambda: not window.everwarm.turns.replying())
        assert "abort" in window.engine.calls


async def test_drafts_belong_to_their_chats(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        window.type("for two")
        window.everwarm.list_view.open_next()
        await until(lambda: window.texts[:1] == ["One"])
        assert window.draft == ""
        window.everwarm.list_view.open_previous()
        await until(lambda: window.texts[:1] == ["Two"])
        assert window.draft == "for two"


async def test_a_markup_title_is_shown_as_it_was_typed(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "<b>hi</b> & more")
        assert window.titles == ["<b>hi</b> & more"]
        stored = await window.everwarm.chats.run(ConversationStore.conversations)
        assert stored[0].title == "<b>hi</b> & more"


async def test_arrow_keys_go_through_the_chats_and_enter_writes_in_one(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two", "Three")
        view = window.everwarm.list_view
        view.setFocus()
        for title in ("Two", "One"):
            QTest.keyClick(view, Qt.Key.Key_Down)
            await until(lambda title=title: window.texts[:1] == [title])
        assert view.hasFocus()
        QTest.keyClick(view, Qt.Key.Key_Return)
        assert window.input.hasFocus()


async def test_coming_to_the_list_from_a_new_chat_opens_none_before_enter(window: RunningWindow) -> None:
    async with window:
        await with_chats(window, "One", "Two")
        await window.everwarm.open_chat.open(None)
        opened: list[object] = []
        window.everwarm.list_view.opened.connect(opened.append)
        window.everwarm.list_view.setFocus()
        assert window.everwarm.list_view.currentIndex().data() == "Two"
        assert (opened, window.texts) == ([], [])
        QTest.keyClick(window.everwarm.list_view, Qt.Key.Key_Return)
        await until(lambda: window.texts[:1] == ["Two"])
        assert window.input.hasFocus()


async def test_a_purged_chat_is_in_no_file_any_more(
    window: RunningWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def holding(word: bytes) -> list[str]:
        files = [path for path in window.paths.root.rglob("*") if path.is_file()]
        return [path.name for path in files if word in path.read_bytes().lower()]

    monkeypatch.setattr(list_actions, "UNDO_MS", 50)
    async with window:
        await with_chats(window, "Keepsake one", "Codeword two", "Keepsake three")
        assert holding(b"codeword") != []
        await window.everwarm.list_actions.delete(window.everwarm.list_model.chats[1].id)
        await until(lambda: window.notice("deleted") == "")
        await until(lambda: holding(b"codeword") == [])
        assert holding(b"keepsake") != []
