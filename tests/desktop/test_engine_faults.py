"""After a load that ended the engine: what the window offers, and that nothing is tried or lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from desktop.conversations import MessageStatus
from desktop.engine_faults import CRASHED, HELD, SAFE, STOP
from inference import (
    EngineError,
    ErrorCode,
    LoadMarks,
    ModelConfig,
    Phase,
    StopUnanswered,
    WorkerExited,
)
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import ANY_REQUEST, Pause, delta, failed, finished, phase, reply

MakeWindow = Callable[..., RunningWindow]


@pytest.fixture
def full(starter_model: Path) -> ModelConfig:
    """What a first start loads."""
    return ModelConfig(str(starter_model))


@pytest.fixture
def crashed_before(make_window: MakeWindow, full: ModelConfig) -> Iterator[RunningWindow]:
    """The last start ended inside the load, and with it the whole app: the mark is still there."""
    window = make_window()
    window.paths.prepare()
    with LoadMarks(window.paths.load_marks).loading(full):
        yield window


def press(window: RunningWindow, key: str, label: str) -> None:
    line = window.everwarm.notices.line(key)
    assert line is not None
    [button] = [button for button in line.buttons if button.text() == label]
    button.click()


async def test_a_load_that_never_ended_is_not_tried_again_by_itself(crashed_before: RunningWindow) -> None:
    async with crashed_before as window:
        await until(lambda: bool(window.notice(HELD)))
        assert "starter.gguf" in window.notice(HELD)
        assert "2,048 tokens" in window.notice(HELD)
        assert "load_model" not in window.engine.calls


async def test_a_message_sent_meanwhile_waits_and_says_why(crashed_before: RunningWindow) -> None:
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        assert (await window.stored_branch())[0].content == "Hi"
        assert window.rows[-1].state == "queued"
        assert window.engine.requests == []
        # Dismissed before, it is there again for whoever waits.
        assert "Safe settings" in window.notice(HELD)


async def test_safe_settings_answer_what_waits_and_are_kept(
    crashed_before: RunningWindow, make_window: MakeWindow, full: ModelConfig
) -> None:
    safe = ModelConfig(full.path, n_ctx=2048, n_gpu_layers=0)
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        window.engine.enqueue(reply("Hello!"))
        press(window, HELD, "Use safe settings")
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]
        assert [request.model for request in window.engine.requests] == [safe]
        await until(lambda: window.engine.loaded == [safe])
        assert window.notice(HELD) == ""
        assert window.note == ""
        await until(lambda: "safe settings" in window.notice(SAFE))
    second = make_window()
    async with second:
        await until(lambda: second.engine.loaded == [safe])
        press(second, SAFE, "Use full settings")
        await until(lambda: second.engine.loaded == [safe, full])
        assert second.notice(SAFE) == ""
    # The real engine does this after each load that ended.
    LoadMarks(second.paths.load_marks).forget(full)
    third = make_window()
    async with third:
        await until(lambda: third.engine.loaded == [full])


async def test_what_is_queued_behind_another_message_gets_the_safe_settings_too(
    crashed_before: RunningWindow,
) -> None:
    async with crashed_before as window:
        await window.send("One")
        await until(lambda: "It waits" in window.note)
        await window.send("Two")
        await until(lambda: len(window.rows) == 4)
        window.engine.enqueue(reply("First"))
        window.engine.enqueue(reply("Second"))
        press(window, HELD, "Use safe settings")
        await window.idle()
        assert [request.model.n_gpu_layers for request in window.engine.requests] == [0, 0]


async def test_trying_as_before_is_possible_too(crashed_before: RunningWindow, full: ModelConfig) -> None:
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        window.engine.enqueue(reply("Hello!"))
        press(window, HELD, "Try as before")
        await window.idle()
        assert [request.model for request in window.engine.requests] == [full]
        assert window.texts == ["Hi", "Hello!"]


async def test_a_message_that_waits_can_be_stopped(crashed_before: RunningWindow) -> None:
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        window.everwarm.open_chat.stop()
        await window.idle()
        assert window.rows[-1].state == "cancelled"
        assert window.note == ""
        assert window.engine.requests == []


async def test_quitting_while_a_message_waits_keeps_it(crashed_before: RunningWindow) -> None:
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
    stored = await crashed_before.stored_branch()
    assert [message.content for message in stored] == ["Hi", ""]
    assert stored[-1].status is MessageStatus.INTERRUPTED


async def test_another_model_for_the_chat_answers_what_waits(
    crashed_before: RunningWindow, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    other.touch()
    async with crashed_before as window:
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        window.engine.enqueue(reply("Hello!"))
        window.everwarm.picker.model_chosen.emit(other)
        await until(lambda: bool(window.engine.requests))
        await window.idle()
        assert [request.model.path for request in window.engine.requests] == [str(other)]
        assert window.texts == ["Hi", "Hello!"]


async def test_a_crash_in_a_load_is_told_and_the_next_message_does_not_repeat_it(
    window: RunningWindow, full: ModelConfig
) -> None:
    window.engine.load_errors[full.path] = EngineError(ErrorCode.ENGINE_DIED, "the engine stopped (SIGSEGV)")
    window.engine.at_load_error = WorkerExited(
        "SIGSEGV", "the engine stopped (SIGSEGV) while it loaded", full
    )
    async with window:
        await until(lambda: "SIGSEGV" in window.notice(HELD))
        assert window.notice("model") == ""
        await window.send("Hi")
        await until(lambda: "It waits" in window.note)
        assert window.engine.calls.count("load_model") == 1
        assert window.engine.requests == []


async def test_where_nothing_is_safer_another_model_is_offered(
    make_window: MakeWindow, full: ModelConfig
) -> None:
    window = make_window()
    window.paths.prepare()
    window.paths.settings.write_text("n_ctx = 512\nn_gpu_layers = 0\n")
    small = ModelConfig(full.path, n_ctx=512, n_gpu_layers=0)
    with LoadMarks(window.paths.load_marks).loading(small):
        await window.__aenter__()
        await until(lambda: bool(window.notice(HELD)))
        line = window.everwarm.notices.line(HELD)
        assert line is not None
        assert [button.text() for button in line.buttons] == ["Try as before", "Open GGUF…"]
        await window.__aexit__()


async def test_a_stop_without_effect_offers_to_end_the_engine(window: RunningWindow) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue([phase(Phase.DECODE), delta("Once"), pause, finished("Once")])
        await window.send("Story")
        await until(lambda: pause.reached)
        window.engine.tell(StopUnanswered(ANY_REQUEST, is_loading=False))
        assert "has not stopped yet" in window.notice(STOP)
        press(window, STOP, "End the engine")
        assert window.engine.calls[-1] == "end_worker"
        window.engine.tell(StopUnanswered(ANY_REQUEST, is_loading=True))
        assert "still loading" in window.notice(STOP)
        pause.go()
        await window.idle()
        assert window.notice(STOP) == ""


DEATH = "the engine stopped (SIGSEGV: a fault in the model library or in a driver)"


async def test_after_a_crash_while_it_wrote_a_click_asks_for_less(
    window: RunningWindow, full: ModelConfig
) -> None:
    safe = ModelConfig(full.path, n_ctx=2048, n_gpu_layers=0)
    async with window:
        await until(lambda: window.engine.loaded == [full])
        window.engine.enqueue([phase(Phase.DECODE), delta("Half a"), failed(ErrorCode.ENGINE_DIED, DEATH)])
        await window.ask("Hi")
        window.engine.tell(WorkerExited("SIGSEGV", DEATH))
        assert "starter.gguf" in window.notice(CRASHED)
        assert "settings.toml" not in window.notice(CRASHED)
        press(window, CRASHED, "Use safe settings")
        await until(lambda: window.engine.loaded == [full, safe])
        assert window.notice(CRASHED) == ""
        window.engine.enqueue(reply("Hello!"))
        window.act("retry")
        await until(lambda: window.texts[-1] == "Hello!")
        await window.idle()
        assert window.engine.requests[-1].model == safe
        await until(lambda: window.notice(SAFE) != "")


@pytest.mark.parametrize("cause", ["ended on request", "SIGTERM"])
async def test_whoever_ended_the_engine_is_offered_nothing(window: RunningWindow, cause: str) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        window.engine.tell(WorkerExited(cause, "the engine was ended"))
        assert window.notice(CRASHED) == ""
