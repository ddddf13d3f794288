"""Typed text that cannot be saved is nowhere but in the composer, so nothing may take it from there."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop.conversations import ConversationStore, NotSaved
from desktop.settings import load_settings
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply

MakeWindow = Callable[..., RunningWindow]


def disk_is_full(*_arguments: object) -> None:
    raise NotSaved("the disk is full")


async def test_another_chat_is_not_opened_over_it(
    window: RunningWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        window.type("half a thought")
        with monkeypatch.context() as broken:
            broken.setattr(ConversationStore, "set_draft", disk_is_full)
            window.everwarm.list_actions.new_chat()
            await until(lambda: window.notice("not saved") != "")
            assert window.draft == "half a thought"
            assert window.texts == ["Hi", "Hello!"]
        window.everwarm.list_actions.new_chat()
        await until(lambda: window.texts == [])
        assert window.draft == ""


async def test_quitting_is_refused_once(window: RunningWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    async with window:
        window.type("half a thought")
        monkeypatch.setattr(ConversationStore, "set_draft", disk_is_full)
        await window.everwarm.quit()
        assert not window.everwarm.closed.is_set()
        assert window.everwarm.window.isVisible()
        assert "discards the text" in window.notice("quit")
        await window.everwarm.quit()
        assert window.everwarm.closed.is_set()


async def test_quitting_does_not_wait_for_another_programs_lock(
    window: RunningWindow, tmp_path: Path
) -> None:
    timeouts: list[float] = []
    async with window:
        set_lock_timeout = ConversationStore.set_lock_timeout

        def watched(store: ConversationStore, seconds: float) -> None:
            timeouts.append(seconds)
            set_lock_timeout(store, seconds)

        ConversationStore.set_lock_timeout = watched  # type: ignore[method-assign]
        try:
            with sqlite3.connect(window.everwarm.paths.database) as other:
                other.execute("BEGIN IMMEDIATE")
                await asyncio.wait_for(window.everwarm.quit(), 60)
                other.rollback()
        finally:
            ConversationStore.set_lock_timeout = set_lock_timeout  # type: ignore[method-assign]
        assert window.everwarm.closed.is_set()
    assert timeouts
    assert max(timeouts) < 0.1


async def test_the_open_chat_is_known_to_the_next_start_without_quitting(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        opened = window.everwarm.open_chat.id
        path = window.everwarm.paths.settings
        await until(lambda: load_settings(path).settings.last_conversation_id == opened)
