"""Chats that are kept in the memory store: the whole window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from desktop.conversation_list import list_actions
from desktop.conversation_list.list_model import ConversationRole
from desktop.conversations import ConversationStore, NotSaved
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply

MakeWindow = Callable[..., RunningWindow]


async def chat(window: RunningWindow, text: str) -> str:
    """A new chat with one reply; its owner."""
    await window.everwarm.open_chat.open(None)
    window.engine.enqueue(reply("Sure."))
    await window.ask(text)
    await until(lambda: window.titles[:1] == [text])
    owner = window.engine.requests[-1].owner
    assert owner is not None
    return owner


def pinned_titles(window: RunningWindow) -> list[str]:
    model = window.everwarm.list_model
    indexes = [model.index(row) for row in range(model.rowCount())]
    return [str(index.data()) for index in indexes if index.data(ConversationRole.PINNED)]


async def press_pin(window: RunningWindow) -> None:
    """Ctrl+D, until the list and the engine know."""
    before, calls = pinned_titles(window), window.engine.calls.count("set_pins")
    QTest.keyClick(window.everwarm.window, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    await until(lambda: pinned_titles(window) != before and window.engine.calls.count("set_pins") > calls)


async def test_the_same_entry_pins_the_chat_and_unpins_it(window: RunningWindow) -> None:
    async with window:
        one, _two = await chat(window, "One"), await chat(window, "Two")
        action = window.everwarm.list_view.pin_action
        window.everwarm.list_view.open_next()
        await until(lambda: window.texts[:1] == ["One"])
        assert not action.isChecked()
        await press_pin(window)
        assert (pinned_titles(window), window.engine.pins, action.isChecked()) == (["One"], (one,), True)
        window.everwarm.list_view.open_previous()
        assert not action.isChecked()
        window.everwarm.list_view.open_next()
        await press_pin(window)
        assert (pinned_titles(window), window.engine.pins, action.isChecked()) == ([], (), False)


async def test_the_entry_is_in_the_menu_of_the_list_and_of_the_window(window: RunningWindow) -> None:
    async with window:
        action = window.everwarm.list_view.pin_action
        assert window.everwarm.list_view.contextMenuPolicy() == Qt.ContextMenuPolicy.ActionsContextMenu
        assert action in window.everwarm.list_view.actions()
        menus = [menu.menu() for menu in window.everwarm.window.menuBar().actions()]
        assert [menu.title() for menu in menus if action in menu.actions()] == ["&Edit"]
        # There is no chat yet.
        assert not action.isEnabled()


async def test_a_pinned_chat_is_marked_and_the_engine_told_of_it_after_a_restart(
    make_window: MakeWindow,
) -> None:
    first = make_window()
    async with first:
        owner = await chat(first, "One")
        await press_pin(first)
    second = make_window()
    async with second:
        await until(lambda: bool(second.engine.loaded))
        # Before anything else, so that nothing of it is evicted meanwhile.
        assert second.engine.calls[:2] == ["set_pins", "load_model"]
        assert second.engine.pins == (owner,)
        index = second.chat_indexes[0]
        assert index.data(Qt.ItemDataRole.AccessibleTextRole) == "One, kept in the memory store"
        assert "kept in the memory store" in index.data(Qt.ItemDataRole.ToolTipRole)
        assert second.everwarm.list_view.pin_action.isChecked()


async def test_a_pin_goes_with_its_chat_and_comes_back_with_it(
    make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_window()
    async with first:
        owner = await chat(first, "One")
        await press_pin(first)
        first.everwarm.list_actions.delete_current()
        await until(lambda: first.titles == [])
        assert first.engine.pins == (owner,)
        first.everwarm.list_actions.undo()
        await until(lambda: pinned_titles(first) == ["One"])
        monkeypatch.setattr(list_actions, "UNDO_MS", 1)
        first.everwarm.list_actions.delete_current()
        await until(lambda: first.titles == [])
    second = make_window()
    async with second:
        await until(lambda: bool(second.engine.loaded))
        assert (second.engine.forgotten, second.engine.pins) == ([owner], ())


async def test_a_private_chat_cannot_be_pinned(window: RunningWindow) -> None:
    async with window:
        await window.everwarm.open_chat.open(None, is_private=True)
        window.engine.enqueue(reply("Sure."))
        await window.ask("Hi")
        await until(lambda: window.titles == ["Hi"])
        assert not window.everwarm.list_view.pin_action.isEnabled()


async def test_a_pin_that_could_not_be_saved_is_not_shown(
    window: RunningWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise NotSaved("Not saved: the disk is full.")

    async with window:
        await chat(window, "One")
        monkeypatch.setattr(ConversationStore, "set_pinned", refuse)
        window.everwarm.list_view.pin_action.trigger()
        await until(lambda: window.notice("not saved") != "")
        await until(lambda: not window.everwarm.list_view.pin_action.isChecked())
        assert window.engine.pins == ()
