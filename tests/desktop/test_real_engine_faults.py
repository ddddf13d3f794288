"""The window with a real worker that dies while it loads the model."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from desktop.conversations import MessageStatus
from desktop.engine_faults import HELD
from desktop.starter_model import find_starter_model
from tests.desktop.real_engine_window import RealEngineWindow
from tests.desktop.running_window import until


async def test_a_crash_at_load_is_not_repeated_and_safe_settings_answer(tmp_path: Path) -> None:
    model = find_starter_model()
    assert model is not None
    data = tmp_path / "data"
    first = RealEngineWindow(data, model, signal.SIGSEGV)
    async with first:
        await until(lambda: "SIGSEGV" in first.notice(HELD))
    second = RealEngineWindow(data, model, None)
    async with second:
        await until(lambda: bool(second.notice(HELD)))
        await second.send("Hi")
        await until(lambda: "It waits" in second.note)
        assert second.client.model_info is None
        line = second.everwarm.notices.line(HELD)
        assert line is not None
        line.buttons[0].click()
        await until(lambda: bool(second.rows[-1].text))
        assert second.client.model_info is not None
        assert second.client.model_info.n_ctx == 2048
        second.everwarm.open_chat.stop()
        await second.idle()
    [_, answer] = await second.stored_branch()
    assert answer.content
    assert answer.status in (MessageStatus.CANCELLED, MessageStatus.COMPLETE)


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot stop a process by a signal")
async def test_a_stop_that_a_stopped_worker_does_not_hear_can_be_enforced(tmp_path: Path) -> None:
    model = find_starter_model()
    assert model is not None
    window = RealEngineWindow(tmp_path / "data", model, None)
    async with window:
        await window.send("Tell me a long story")
        turns, chat = window.everwarm.turns, window.everwarm.open_chat
        await until(lambda: any(turn.text for turn in turns.turns_of(chat.id)))
        assert window.client.worker_pid is not None
        os.kill(window.client.worker_pid, signal.SIGSTOP)
        window.everwarm.open_chat.stop()
        await until(lambda: "does not answer" in window.notice("stop"))
        line = window.everwarm.notices.line("stop")
        assert line is not None
        line.buttons[0].click()
        await window.idle()
        assert "did not answer" in window.rows[-1].error
    # When it has quit: the end of a reply is on disk a little later than in the window.
    assert (await window.stored_branch())[-1].status is MessageStatus.INTERRUPTED
