"""Opening a chat brings it into memory ahead of the question: the whole window with a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from desktop.chat import chat_prefetch
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished, reply

MakeWindow = Callable[..., RunningWindow]


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_prefetch, "PREFETCH_PAUSE_MS", 5)


async def with_chats(window: RunningWindow, *titles: str, is_private: bool = False) -> None:
    for title in titles:
        await window.everwarm.open_chat.open(None, is_private=is_private)
        window.engine.enqueue(reply("Sure."))
        await window.ask(title)
    await until(lambda: set(titles) <= set(window.titles))


def prefetched(window: RunningWindow) -> list[list[str]]:
    """The messages of each chat that was prefetched."""
    return [[message.content for message in request.messages or ()] for request in window.engine.prefetched]


async def long_enough() -> None:
    """Several times the pause, for what must not happen."""
    await asyncio.sleep(0.1)


async def test_the_last_chat_is_prefetched_once_its_model_is_loaded(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        await with_chats(first, "Hi")
    second = make_window()
    second.engine.load_gate = Pause()
    async with second:
        await until(lambda: second.engine.load_gate.reached)
        await long_enough()
        assert prefetched(second) == []
        second.engine.load_gate.go()
        await until(lambda: prefetched(second) == [["Hi", "Sure."]])
        [request] = second.engine.prefetched
        assert request.owner == first.engine.requests[0].owner
        assert request.model == second.engine.loaded[0]


async def test_only_the_chat_one_stays_with_is_prefetched(
    make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the test: the pause ends when the test says so, however slow the machine is.
    monkeypatch.setattr(chat_prefetch, "PREFETCH_PAUSE_MS", 3_600_000)
    window = make_window()
    async with window:
        await until(lambda: bool(window.engine.loaded))
        await with_chats(window, "One", "Two", "Three")
        before = len(prefetched(window))
        for _ in range(2):
            window.everwarm.list_view.open_next()
            await until(lambda: window.everwarm.list_view.current_id == window.everwarm.open_chat.id)
        assert len(prefetched(window)) == before
        window.everwarm.prefetch.pause_over.emit()
        await until(lambda: len(prefetched(window)) > before)
        assert prefetched(window)[before:] == [["One", "Sure."]]


async def test_nothing_is_prefetched_while_a_reply_runs_but_once_it_has_ended(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        await with_chats(window, "One")
        one = window.everwarm.open_chat.id
        pause = Pause()
        await window.everwarm.open_chat.open(None)
        window.engine.enqueue([delta("Once"), pause, finished("Once")])
        await window.send("Story")
        await until(lambda: pause.reached)
        window.engine.prefetched.clear()
        await window.everwarm.open_chat.open(one)
        await long_enough()
        assert prefetched(window) == []
        pause.go()
        await until(lambda: prefetched(window) == [["One", "Sure."]])


async def test_a_private_chat_is_not_prefetched(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        await with_chats(window, "Secret", is_private=True)
        private = window.everwarm.open_chat.id
        await window.everwarm.open_chat.open(None)
        await window.everwarm.open_chat.open(private)
        await long_enough()
        assert prefetched(window) == []


async def test_a_chat_whose_model_is_not_the_loaded_one_is_not_prefetched(
    window: RunningWindow, tmp_path
) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        await with_chats(window, "Hi")
        await long_enough()
        window.engine.prefetched.clear()
        other = tmp_path / "other.gguf"
        other.touch()
        await window.everwarm.open_chat.set_model(other)
        await window.everwarm.open_chat.open(window.everwarm.open_chat.id)
        await long_enough()
        assert prefetched(window) == []
