"""Quitting, being killed, and starting again on the same data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt

from desktop.conversations import MessageStatus
from inference import Phase
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished, phase, reply

MakeWindow = Callable[..., RunningWindow]


async def test_quitting_hides_the_window_before_anything_else_and_keeps_the_partial_reply(
    window: RunningWindow,
) -> None:
    async with window:
        window.engine.enqueue([phase(Phase.DECODE), delta("Once"), Pause(), finished("never")])
        await window.send("Story")
        await until(lambda: window.texts[-1] == "Once")
        visible_at_close: list[bool] = []
        close = window.engine.close

        async def watched_close(timeout_s: float) -> None:
            visible_at_close.append(window.everwarm.window.isVisible())
            await close(timeout_s)

        window.engine.close = watched_close  # type: ignore[method-assign]
        window.everwarm.window.close()
        await window.everwarm.closed.wait()
        assert visible_at_close == [False]
        stored = await window.stored_branch()
        assert (stored[-1].content, stored[-1].status) == ("Once", MessageStatus.INTERRUPTED)


async def test_the_chat_and_its_draft_are_there_after_a_restart(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        first.engine.enqueue(reply("Hello!"))
        await first.ask("Hi")
        first.type("half a thou")
    second = make_window()
    async with second:
        assert second.texts == ["Hi", "Hello!"]
        assert second.draft == "half a thou"
        await until(lambda: second.titles == ["Hi"])
        assert second.rows[-1].caption == first.rows[-1].caption
        assert second.rows[-1].details == first.rows[-1].details != ()


async def test_a_draft_of_a_chat_that_was_never_sent_outlives_a_restart(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        first.type("half a thou")
    second = make_window()
    async with second:
        assert second.draft == "half a thou"
        assert second.rows == []


async def test_a_reply_cut_by_a_kill_is_shown_as_interrupted_and_can_be_tried_again(
    make_window: MakeWindow, starter_model: Path
) -> None:
    first = make_window()
    async with first:
        first.engine.enqueue(reply("Hello!"))
        await first.ask("Hi")
        await first.leave_reply_streaming("Half")
    second = make_window()
    async with second:
        assert second.rows[-1].state == "interrupted"
        assert second.texts[-1] == "Half"
        second.engine.enqueue(reply("Whole"))
        second.act("retry")
        await until(lambda: len(second.engine.requests) == 1)
        await second.idle()
        assert second.texts[-1] == "Whole"


async def test_the_chosen_theme_is_kept(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        first.everwarm.window.theme_chosen.emit("dark")
    second = make_window()
    async with second:
        assert second.everwarm.settings.settings.theme == "dark"
        assert second.everwarm.window.palette().window().color().lightness() < 128
        second.everwarm.window.theme_chosen.emit("light")


async def test_the_size_of_the_text_is_kept(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        first.everwarm.panel.transcript.set_font_scale(1.3)
    second = make_window()
    async with second:
        assert second.everwarm.panel.transcript.font_scale() == 1.3


async def test_what_is_sent_before_the_chats_are_there_is_sent_once_they_are(make_window: MakeWindow) -> None:
    first = make_window()
    async with first:
        first.engine.enqueue(reply("Hello!"))
        await first.ask("Hi")
        first.type("half a thought")
    second = make_window()
    second.build()
    second.engine.enqueue(reply("Yes."))
    second.type("Still there?")
    second.press(Qt.Key.Key_Return)
    await asyncio.sleep(0)
    await second.everwarm.start()
    await until(lambda: second.texts == ["Hi", "Hello!", "Still there?", "Yes."])
    assert second.draft == "half a thought"
    await second.__aexit__()


async def test_quitting_before_the_start_is_over_ends_well(make_window: MakeWindow) -> None:
    window = make_window()
    window.build()
    starting = asyncio.create_task(window.everwarm.start())
    await asyncio.sleep(0)
    await window.__aexit__()
    assert starting.done()
