"""Titles made by the model: when they are, when they are not, and what comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from desktop.chat import title_writing
from desktop.chat.title_writing import ASK_FOR_TITLE
from desktop.conversations import ConversationStore
from inference import FinishReason
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished, fit, reply

QUESTION = "Can you tell me how a rainbow forms, and why it is round?"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(title_writing, "TITLE_PAUSE_MS", 20)


async def test_a_chat_gets_its_title_once_nothing_is_asked_any_more(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        window.engine.enqueue_aside(reply("**How Rainbows Form**"))
        await window.ask(QUESTION)
        await until(lambda: window.titles == ["How Rainbows Form"])
        assert window.everwarm.panel.title == "How Rainbows Form"
        [asked] = window.engine.asides
        assert [message.content for message in asked.messages or ()] == [
            QUESTION,
            "Light is bent.",
            ASK_FOR_TITLE,
        ]
        assert (asked.is_aside, asked.is_private, asked.owner) == (True, True, None)
        assert [message.content for message in await window.stored_branch()] == [QUESTION, "Light is bent."]
        window.engine.enqueue(reply("Yes."))
        await window.ask("More")
        assert len(window.engine.asides) == 1


async def test_a_title_that_was_typed_stays(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        pause = Pause()
        window.engine.enqueue_aside([pause, finished("How Rainbows Form")])
        await window.ask(QUESTION)
        await until(lambda: pause.reached)
        chat = window.everwarm.open_chat.id
        assert chat is not None
        # Even if it is the very same one.
        [title] = window.titles
        await window.everwarm.list_actions.rename(chat, title)
        pause.go()
        await until(lambda: not window.everwarm.titles.is_writing)
        assert window.titles == [title]
        window.engine.enqueue(reply("Yes."))
        await window.ask("More")
        await window.everwarm.titles._write() if window.everwarm.titles._answered else None
        assert len(window.engine.asides) == 1


async def test_a_question_ends_it_before_it_is_given_to_the_engine(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        pause = Pause()
        window.engine.enqueue_aside([pause, finished("How Rainbows Form")])
        await window.ask(QUESTION)
        await until(lambda: pause.reached)
        window.engine.enqueue([delta("Well"), Pause(), finished("Well")])
        before = len(window.engine.calls)
        window.everwarm.open_chat._submit("More")
        await until(lambda: "generate" in window.engine.calls[before:])
        assert [call for call in window.engine.calls[before:] if call in ("abort", "generate")] == [
            "abort",
            "generate",
        ]
        window.press(Qt.Key.Key_Escape)
        window.everwarm.open_chat.stop()
        await window.idle()
        assert window.titles[0].startswith("Can you tell me")


async def test_typing_ends_it_and_it_is_tried_again_when_the_box_is_empty(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        pause = Pause()
        window.engine.enqueue_aside([pause, finished("Too late")])
        await window.ask(QUESTION)
        await until(lambda: pause.reached)
        window.type("a")
        await until(lambda: "abort" in window.engine.calls)
        await until(lambda: not window.everwarm.titles.is_writing)
        assert window.titles[0].startswith("Can you tell me")
        assert len(window.engine.asides) == 1


async def test_opening_another_chat_ends_it(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        pause = Pause()
        window.engine.enqueue_aside([pause, finished("Too late")])
        await window.ask(QUESTION)
        await until(lambda: pause.reached)
        await window.everwarm.open_chat.open(None)
        await until(lambda: "abort" in window.engine.calls)
        assert window.titles[0].startswith("Can you tell me")


@pytest.mark.parametrize("why", ["switched off", "private", "typed", "no room"])
async def test_it_is_not_asked_for(window: RunningWindow, why: str) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        if why == "switched off":
            window.everwarm.settings.change(lambda settings: replace(settings, write_titles=False))
        if why == "private":
            await window.everwarm.open_chat.open(None, is_private=True)
        if why == "no room":
            window.engine.fit = lambda _: fit(5000)
        window.engine.enqueue(reply("Light is bent."))
        await window.ask(QUESTION)
        if why == "typed":
            window.type("and")
        titles = window.everwarm.titles
        await until(lambda: not titles._timer.isActive() and not titles.is_writing)
        assert window.engine.asides == []


@pytest.mark.parametrize(
    "script",
    [
        [finished("A name that does not end and", FinishReason.LENGTH)],
        reply("  \n"),
        reply("I am sorry, but as a language model I cannot name this conversation for you, because"),
    ],
)
async def test_what_is_no_title_leaves_the_first_words(window: RunningWindow, script: list) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        for text in ("Light is bent.", "Yes.", "No."):
            window.engine.enqueue(reply(text))
            window.engine.enqueue_aside(script)
        await window.ask(QUESTION)
        titles = window.everwarm.titles
        for number in (1, 2):
            await until(lambda number=number: len(window.engine.asides) == number and not titles.is_writing)
            assert window.titles[0].startswith("Can you tell me")
            await window.ask("More")
        # Twice is enough.
        assert not titles._timer.isActive()
        assert len(window.engine.asides) == 2


async def test_a_title_of_the_model_is_on_disk(window: RunningWindow) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.enqueue(reply("Light is bent."))
        window.engine.enqueue_aside(reply("Title: Rainbows."))
        await window.ask(QUESTION)
        await until(lambda: window.titles == ["Rainbows"])
        [stored] = await window.everwarm.chats.run(ConversationStore.conversations)
        assert stored.title == "Rainbows"
