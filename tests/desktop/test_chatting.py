"""A first start, and what one does in it: the whole window with a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from desktop.conversations import ConversationStore
from inference import Phase
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished, phase, reply

MakeWindow = Callable[..., RunningWindow]


async def test_a_first_start_needs_no_questions(window: RunningWindow) -> None:
    async with window:
        assert window.input.hasFocus()
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        assert window.texts == ["Hi", "Hello!"]
        await until(lambda: window.titles == ["Hi"])
        assert window.draft == ""


async def test_the_starter_model_is_loaded_by_itself(window: RunningWindow, starter_model: Path) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        assert [config.path for config in window.engine.loaded] == [str(starter_model)]


async def test_the_caption_is_made_of_the_replys_own_figures(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        caption = "reused 4,012 · restored 0 · read 31 · first token 0.03 s · 41.2 tok/s"
        assert window.rows[-1].caption == caption


async def test_text_appears_while_it_is_written(window: RunningWindow) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue(
            [
                phase(Phase.PREFILL),
                phase(Phase.DECODE),
                delta("Once upon"),
                pause,
                finished("Once upon a time"),
            ]
        )
        await window.send("Tell me a story")
        await until(lambda: window.texts[-1] == "Once upon")
        assert window.rows[-1].state == "writing"
        assert window.everwarm.gauges.phase.text() == "Writing (decode)"
        pause.go()
        await window.idle()
        assert window.texts[-1] == "Once upon a time"
        assert window.rows[-1].state == "done"


async def test_stop_keeps_the_partial_reply_and_marks_it(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue([phase(Phase.DECODE), delta("Once"), Pause(), finished("never")])
        await window.send("Tell me a story")
        await until(lambda: window.texts[-1] == "Once")
        window.press(Qt.Key.Key_Escape)
        await window.idle()
        assert (window.texts[-1], window.rows[-1].state) == ("Once", "cancelled")
        assert window.rows[-1].caption.startswith("Stopped")


async def test_a_message_sent_while_the_model_loads_is_on_disk_and_the_window_says_so(
    make_window: MakeWindow,
) -> None:
    window = make_window()
    window.engine.load_gate = Pause()
    async with window:
        pause = Pause()
        window.engine.enqueue([phase(Phase.LOADING), pause, *reply("Hello!")])
        await window.send("Hi")
        await until(lambda: pause.reached)
        assert window.everwarm.gauges.phase.text() == "Loading the model"
        assert window.rows[-1].state == "queued"
        assert "still loading" in window.note
        conversation = window.everwarm.open_chat.conversation
        assert conversation is not None
        branch = await window.everwarm.chats.run(ConversationStore.branch, conversation.id)
        assert branch[0].content == "Hi"
        window.engine.load_gate.go()
        pause.go()
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]
        assert window.note == ""


async def test_a_second_message_is_answered_after_the_first(window: RunningWindow) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue([phase(Phase.DECODE), delta("One"), pause, finished("One")])
        window.engine.enqueue(reply("Two"))
        await window.send("First")
        await until(lambda: pause.reached)
        await window.send("Second")
        await until(lambda: len(window.rows) == 4)
        assert window.rows[-1].state == "queued"
        pause.go()
        await window.idle()
        assert window.texts == ["First", "One", "Second", "Two"]


async def test_enter_pressed_twice_sends_once(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        window.type("Hi")
        window.press(Qt.Key.Key_Return)
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.rows) == 2)
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]


async def test_a_reply_goes_on_while_another_chat_is_open(window: RunningWindow) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue(
            [phase(Phase.DECODE), delta("Once"), pause, delta(" upon", 2, 0.1), finished("Once upon")]
        )
        await window.send("Story")
        await until(lambda: window.texts[-1] == "Once")
        story = window.everwarm.open_chat.id
        await window.everwarm.open_chat.open(None)
        assert window.rows == []
        assert window.everwarm.gauges.first_token.text() == ""
        await until(lambda: window.replying_titles == ["Story"])
        await window.everwarm.open_chat.open(story)
        assert window.texts == ["Story", "Once"]
        pause.go()
        await window.idle()
        assert window.texts == ["Story", "Once upon"]
        await until(lambda: window.replying_titles == [])


async def test_the_reply_log_holds_the_counters_that_are_shown(
    make_window: MakeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "replies.jsonl"
    monkeypatch.setenv("EVERWARM_EVENT_LOG", str(log))
    window = make_window()
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
    [line] = log.read_text().splitlines()
    entry = json.loads(line)
    assert entry["counts"]["prefilled_tokens"] == 31
    assert entry["finish_reason"] == "stop"
    assert "Hello" not in line


async def test_a_chat_whose_reply_waits_says_so_when_it_is_opened_again(window: RunningWindow) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue([phase(Phase.PREFILL), pause, *reply("Sure.")])
        await window.send("Story")
        await until(lambda: pause.reached)
        story = window.everwarm.open_chat.id
        await window.everwarm.open_chat.open(None)
        assert window.everwarm.gauges.phase.text() == "Ready"
        await window.everwarm.open_chat.open(story)
        assert window.everwarm.gauges.phase.text() == "Reading your message (prefill)"
        pause.go()
        await window.idle()
