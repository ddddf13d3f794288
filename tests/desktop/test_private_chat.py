"""A private chat: nothing of it goes to the KV store, and one sees that it is private. The whole window."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest

from desktop.conversation_list.list_model import ConversationRole
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply

MakeWindow = Callable[..., RunningWindow]


async def private_chat(window: RunningWindow) -> None:
    QTest.keyClick(
        window.everwarm.window,
        Qt.Key.Key_N,
        Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier,
    )
    await until(lambda: window.everwarm.open_chat.is_private)


async def test_the_menu_offers_a_private_chat_with_its_key(window: RunningWindow) -> None:
    async with window:
        actions = window.everwarm.window.findChildren(QAction)
        [action] = [action for action in actions if action.text() == "New &Private Chat"]
        assert action.shortcut().toString() == "Ctrl+Shift+N"


async def test_every_request_of_a_private_chat_is_private(window: RunningWindow) -> None:
    async with window:
        await private_chat(window)
        for text in ("Hi", "More"):
            window.engine.enqueue(reply("Sure."))
            await window.ask(text)
        assert [request.is_private for request in window.engine.requests] == [True, True]


async def test_the_chat_after_a_private_one_is_not_private(window: RunningWindow) -> None:
    async with window:
        await private_chat(window)
        await window.everwarm.open_chat.open(None)
        window.engine.enqueue(reply("Sure."))
        await window.ask("Hi")
        assert [request.is_private for request in window.engine.requests] == [False]
        assert not window.everwarm.panel.is_marked_private


async def test_a_private_chat_is_marked_in_header_and_list_also_after_a_restart(
    make_window: MakeWindow,
) -> None:
    first = make_window()
    async with first:
        await private_chat(first)
        assert first.everwarm.panel.is_marked_private
        first.engine.enqueue(reply("Sure."))
        await first.ask("Hi")
    second = make_window()
    async with second:
        await until(lambda: second.titles == ["Hi"])
        index = second.chat_indexes[0]
        assert index.data(ConversationRole.PRIVATE)
        assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "Hi, private"
        assert second.everwarm.panel.is_marked_private
        second.engine.enqueue(reply("Yes."))
        await second.ask("More")
        assert second.engine.requests[-1].is_private


async def test_the_receipt_of_a_private_chat_says_why_everything_was_read(window: RunningWindow) -> None:
    async with window:
        await private_chat(window)
        window.engine.enqueue(reply("Sure."))
        await window.ask("Hi")
        assert "private" in window.rows[-1].details[-1].value
