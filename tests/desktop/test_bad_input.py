"""What goes wrong, and that nothing typed is lost by it: the whole window with a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt

from desktop.conversations import ContextChoice
from inference import EngineError, ErrorCode
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, failed, reply

MakeWindow = Callable[..., RunningWindow]


def remove(path: Path) -> None:
    path.unlink()


async def test_a_dead_engine_keeps_the_partial_reply_and_says_why(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue([delta("Once"), failed(ErrorCode.ENGINE_DIED, "the engine stopped (SIGSEGV)")])
        window.engine.enqueue(reply("Here I am"))
        await window.ask("Story")
        assert (window.texts[-1], window.rows[-1].state) == ("Once", "interrupted")
        assert window.rows[-1].error == "The engine stopped (SIGSEGV)."
        await window.ask("Go on")
        assert window.texts == ["Story", "Once", "Go on", "Here I am"]
        # Only the last message can be tried again.
        assert all(row.actions == () for row in window.rows[:-1])


async def test_trying_again_puts_a_new_reply_in_place_of_the_failed_one(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue([failed(ErrorCode.DECODE_FAILED, "the model could not be run")])
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        assert window.rows[-1].state == "failed"
        window.act("retry")
        await until(lambda: len(window.engine.requests) == 2)
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]


async def test_a_message_that_is_too_long_is_back_in_the_composer(window: RunningWindow) -> None:
    async with window:
        window.everwarm.full_context.choose(ContextChoice.STOP)
        window.engine.enqueue(
            [failed(ErrorCode.PROMPT_TOO_LONG, "9,012 tokens are too many: the context holds 8,192")]
        )
        window.type("A very long story")
        window.press(Qt.Key.Key_Return)
        await until(lambda: window.notice("told") != "")
        assert window.draft == "A very long story"
        assert window.rows == []
        assert "9,012 tokens are too many: the context holds 8,192" in window.notice("told")
        pause = Pause()
        window.engine.enqueue([pause, *reply("Hello!")])
        window.press(Qt.Key.Key_Return)
        await until(lambda: pause.reached)
        assert window.notice("told") == ""  # the message that it was about is not in the box any more
        pause.go()
        await window.idle()
        assert window.texts == ["A very long story", "Hello!"]


async def test_what_was_typed_meanwhile_stays_behind_a_message_that_came_back(window: RunningWindow) -> None:
    async with window:
        window.everwarm.full_context.choose(ContextChoice.STOP)
        pause = Pause()
        window.engine.enqueue([pause, failed(ErrorCode.PROMPT_TOO_LONG, "too long")])
        await window.send("Story")
        await until(lambda: pause.reached)
        window.type("and more")
        pause.go()
        await until(lambda: window.draft == "Story\n\nand more")


async def test_a_model_that_is_gone_leaves_the_message_and_offers_others(
    window: RunningWindow, starter_model: Path, tmp_path: Path
) -> None:
    async with window:
        remove(starter_model)
        window.engine.enqueue([failed(ErrorCode.MODEL_NOT_FOUND, "there is no file at that path")])
        await window.ask("Hi")
        assert window.rows[-1].state == "failed"
        assert {"find_model", "choose_model", "retry"} == {action for action, _ in window.rows[-1].actions}
        other = tmp_path / "other.gguf"
        other.touch()
        window.engine.enqueue(reply("Hello!"))
        window.everwarm.picker.model_chosen.emit(other)
        await until(lambda: len(window.engine.requests) == 2)
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]
        assert window.engine.requests[-1].model.path == str(other)


async def test_without_any_model_the_message_is_kept_and_answered_once_there_is_one(
    make_window: MakeWindow, tmp_path: Path
) -> None:
    window = make_window(model=None)
    async with window:
        assert "no model yet" in window.notice("model")
        await window.send("Hi")
        await until(lambda: window.rows[-1].error != "")
        model = tmp_path / "mine.gguf"
        model.touch()
        window.engine.enqueue(reply("Hello!"))
        window.everwarm.picker.model_chosen.emit(model)
        await until(lambda: len(window.rows) == 2)
        await window.idle()
        assert window.texts == ["Hi", "Hello!"]
        assert window.notice("model") == ""


async def test_a_file_that_cannot_be_loaded_leaves_the_former_model(
    window: RunningWindow, starter_model: Path, tmp_path: Path
) -> None:
    async with window:
        await until(lambda: bool(window.engine.loaded))
        notes = tmp_path / "notes.gguf"
        refusal = EngineError(ErrorCode.MODEL_INVALID, "notes.gguf is not a GGUF file")
        window.engine.load_errors[str(notes)] = refusal
        window.everwarm.picker.model_chosen.emit(notes)
        await until(lambda: window.notice("model") != "")
        assert window.notice("model") == "notes.gguf is not a GGUF file."
        assert window.everwarm.open_chat.model_path == starter_model
        await until(lambda: len(window.engine.loaded) == 2)
        assert window.engine.loaded[-1].path == str(starter_model)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        assert window.engine.requests[-1].model.path == str(starter_model)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        await window.idle()
        assert window.notice("model") == ""  # what was wrong with the other file is past


async def test_a_full_disk_keeps_the_message_in_the_composer_until_there_is_room(
    window: RunningWindow, disk_full: Callable[[bool], None]
) -> None:
    async with window:
        disk_full(True)
        window.type("Hi")
        window.press(Qt.Key.Key_Return)
        await until(lambda: window.notice("not saved") != "")
        assert window.draft == "Hi"
        assert window.rows == []
        window.type(" there")
        disk_full(False)
        window.engine.enqueue(reply("Hello!"))
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.rows) == 2)
        await window.idle()
        assert window.texts == ["Hi there", "Hello!"]
        assert window.notice("not saved") == ""


async def test_a_chat_whose_model_is_gone_opens_and_says_what_to_do(
    make_window: MakeWindow, starter_model: Path
) -> None:
    first = make_window()
    async with first:
        first.engine.enqueue(reply("Hello!"))
        await first.ask("Hi")
    remove(starter_model)
    second = make_window(model=None)
    async with second:
        assert second.texts == ["Hi", "Hello!"]
        assert "starter.gguf" in second.notice("model")
        assert "find the file or choose another model" in second.notice("model")
        assert second.engine.loaded == []
