"""The engine is told of a draft's whole words while it is typed: the whole window with a scripted engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.chat import draft_reading
from desktop.chat.draft_reading import whole_words
from inference import ReadAhead
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_reading, "DRAFT_READING_PAUSE_MS", 5)
    monkeypatch.setattr(draft_reading, "OPENED_PAUSE_MS", 10)
    monkeypatch.setattr(draft_reading, "STILL_MS", 20)


def told(window: RunningWindow) -> list[list[str]]:
    """Of drafts read up to a whole word."""
    return messages(window, ReadAhead.WORDS)


def messages(window: RunningWindow, how_much: ReadAhead) -> list[list[str]]:
    return [
        [message.content for message in request.messages or ()]
        for request, wanted in window.engine.drafts
        if wanted is how_much
    ]


async def long_enough() -> None:
    """Several times the pause, for what must not happen."""
    await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("", ""),
        ("Tel", ""),
        ("Tell ", "Tell"),
        ("Tell me", "Tell"),
        ("Tell me\n\n", "Tell me"),
        ("  a b", "a"),
    ],
)
def test_the_word_that_is_being_typed_is_left_out(draft: str, words: str) -> None:
    assert whole_words(draft) == words


@given(st.text(), st.text())
def test_whole_words_stay_when_more_is_typed(draft: str, more: str) -> None:
    assert whole_words(draft + more).startswith(whole_words(draft))


async def test_words_are_told_as_they_are_typed_behind_the_chat(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Sure."))
        await window.ask("Hi")
        composer = window.everwarm.panel.composer
        composer.set_text("And then what hap")
        await until(lambda: told(window)[-1:] == [["Hi", "Sure.", "And then what"]])
        num_told = len(told(window))
        composer.set_text("And then what happ")
        await long_enough()
        assert len(told(window)) == num_told
        composer.set_text("And then what happened to")
        await until(lambda: told(window)[-1:] == [["Hi", "Sure.", "And then what happened"]])


async def test_once_nobody_types_on_all_of_it_is_told_as_it_would_be_sent(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.everwarm.panel.composer.set_text("And then what hap")
        await until(lambda: messages(window, ReadAhead.ALL) == [["And then what hap"]])
        await long_enough()
        assert window.engine.drafts[-1][1] is ReadAhead.ALL


async def test_in_a_private_chat_the_engine_is_told_that_it_is_one(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        await window.everwarm.open_chat.open(None, is_private=True)
        window.everwarm.panel.composer.set_text("My secret is th")
        await until(lambda: told(window)[-1:] == [["My secret is"]])
        assert window.engine.drafts[-1][0].is_private


async def test_whoever_wants_no_draft_read_has_none_read(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.everwarm.settings.change(lambda s: replace(s, read_drafts="never"))
        window.everwarm.panel.composer.set_text("And then what hap")
        await long_enough()
        assert window.engine.drafts == []


async def test_on_battery_it_is_as_the_user_wishes(
    window: RunningWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_reading, "_on_battery", lambda: True)
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.everwarm.settings.change(lambda s: replace(s, read_drafts="on mains power"))
        window.everwarm.panel.composer.set_text("And then what hap")
        await long_enough()
        assert told(window) == []
        window.everwarm.settings.change(lambda s: replace(s, read_drafts="always"))
        window.everwarm.panel.composer.set_text("And then what happened th")
        await until(lambda: told(window) == [["And then what happened"]])
