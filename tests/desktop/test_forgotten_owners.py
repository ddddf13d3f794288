"""What the engine keeps of a chat goes with the chat, whatever happens in between: the whole window."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from desktop.conversation_list import list_actions
from desktop.conversations import ConversationStore
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, reply

MakeWindow = Callable[..., RunningWindow]


async def chat(window: RunningWindow, text: str) -> str:
    """A new chat with one reply; its owner, as the engine heard it."""
    await window.everwarm.open_chat.open(None)
    window.engine.enqueue(reply("Sure."))
    await window.ask(text)
    owner = window.engine.requests[-1].owner
    assert owner is not None
    return owner


async def deleted_chat(window: RunningWindow) -> str:
    """Deleted by the user, not yet purged when the window closes."""
    owner = await chat(window, "Secret")
    window.everwarm.list_actions.delete_current()
    await until(lambda: window.titles == [])
    return owner


async def owners_to_forget(window: RunningWindow) -> list[str]:
    return await window.everwarm.chats.run(ConversationStore.owners_to_forget)


async def test_every_request_of_a_chat_carries_the_chats_own_owner(window: RunningWindow) -> None:
    async with window:
        one = await chat(window, "One")
        window.engine.enqueue(reply("Yes."))
        await window.ask("More")
        two = await chat(window, "Two")
        assert [request.owner for request in window.engine.requests] == [one, one, two]
        assert one != two


async def test_the_engine_forgets_a_deleted_chat_once_it_cannot_be_brought_back(
    make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_actions, "UNDO_MS", 50)
    window = make_window()
    async with window:
        await chat(window, "Kept")
        gone = await chat(window, "Secret")
        window.everwarm.list_actions.delete_current()
        await until(lambda: bool(window.engine.forgotten))
        assert window.engine.forgotten == [gone]
        assert window.notice("deleted") == ""


async def test_a_chat_that_was_brought_back_is_not_forgotten(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        await deleted_chat(first)
        first.everwarm.list_actions.undo()
        await until(lambda: first.titles == ["Secret"])
    second = make_window()
    async with second:
        await until(lambda: bool(second.engine.loaded))
        assert second.engine.forgotten == []


async def test_a_chat_deleted_before_quitting_is_forgotten_at_the_next_start_and_then_never_again(
    make_window: MakeWindow,
) -> None:
    first = make_window()
    async with first:
        gone = await deleted_chat(first)
    second = make_window()
    async with second:
        await until(lambda: bool(second.engine.loaded))
        assert second.engine.calls[:3] == ["set_pins", "forget", "load_model"]
        assert second.engine.forgotten == [gone]
    third = make_window()
    async with third:
        await until(lambda: bool(third.engine.loaded))
        assert third.engine.forgotten == []


async def test_an_engine_that_cannot_be_started_is_told_at_the_next_start(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        gone = await deleted_chat(first)
    second = make_window()
    second.engine.cannot_start = True
    async with second:
        await until(lambda: bool(second.engine.loaded))
    third = make_window()
    async with third:
        await until(lambda: third.engine.forgotten == [gone])


async def test_an_engine_that_died_after_it_was_told_is_told_again(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        gone = await deleted_chat(first)
    second = make_window()
    second.engine.load_gate = Pause()
    async with second:
        await until(lambda: second.engine.load_gate.reached)
        second.engine.worker_pid = 2
        second.engine.load_gate.go()
        await until(lambda: bool(second.engine.loaded))
    third = make_window()
    async with third:
        await until(lambda: third.engine.forgotten == [gone])


async def test_what_is_told_while_it_runs_is_kept_until_the_next_start(
    make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request may keep the engine busy until it is closed, and what then still waits is dropped.
    monkeypatch.setattr(list_actions, "UNDO_MS", 1)
    window = make_window()
    async with window:
        gone = await deleted_chat(window)
        await until(lambda: window.engine.forgotten == [gone])
        assert await owners_to_forget(window) == [gone]
