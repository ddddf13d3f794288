"""What the application promises, seen through its window."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.real_window import RealWindow, screen, wait_until

pytestmark = pytest.mark.end_to_end
Open = Callable[[], RealWindow]

LONG_QUESTION = "Tell me a very long story about a lighthouse keeper, with many chapters."


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    with screen() as name:
        yield name


@pytest.fixture
def open_window(display: str, tmp_path: Path) -> Iterator[Open]:
    opened: list[RealWindow] = []

    def open_window() -> RealWindow:
        opened.append(RealWindow(display, tmp_path / "data"))
        opened[-1].wait_for_window()
        return opened[-1]

    yield open_window
    for window in opened:
        window.kill()


def streaming_text(window: RealWindow) -> str:
    return next((content for role, content, status in window.messages() if status == "streaming"), "")


def test_a_chat_closed_and_reopened_is_not_read_again(open_window: Open) -> None:
    first = open_window()
    first.ask("Say hello in one sentence.")
    last = first.ask("And now say goodbye.")
    read_so_far = last["counts"]["num_prompt_tokens"] + last["num_generation_tokens"]
    first.quit()
    second = open_window()
    counts = second.ask("What did you say first?")["counts"]
    assert counts["reused_tokens"] == 0  # another process: there is nothing in its memory
    assert counts["prefilled_tokens"] <= counts["num_prompt_tokens"] - read_so_far + 1
    assert counts["restored_tokens"] + counts["prefilled_tokens"] == counts["num_prompt_tokens"]
    roles = [role for role, _, _ in second.messages()]
    assert roles == ["user", "assistant"] * 3
    second.quit()


def test_a_message_typed_before_the_model_is_loaded_is_kept_and_answered(open_window: Open) -> None:
    window = open_window()
    window.type("Hello there")
    window.press("Return")
    wait_until(lambda: ("user", "Hello there", "complete") in window.messages(), "the message is on disk")
    wait_until(lambda: len(window.replies()) == 1, "it is answered")
    window.quit()


def test_quitting_while_a_reply_streams_keeps_what_was_written(open_window: Open) -> None:
    window = open_window()
    window.type(LONG_QUESTION)
    window.press("Return")
    wait_until(lambda: streaming_text(window) != "", "the reply streams")
    worker = window.worker()
    window.quit()
    assert not worker.is_running()
    (role, content, status) = window.messages()[-1]
    assert role == "assistant"
    assert content
    assert status in ("interrupted", "cancelled", "complete")


def test_a_window_killed_in_the_middle_of_a_reply_has_lost_nothing_that_was_sent(open_window: Open) -> None:
    # Reported as nomic-ai/gpt4all#3145, #3406, #727.
    window = open_window()
    window.type(LONG_QUESTION)
    window.press("Return")
    wait_until(lambda: streaming_text(window) != "", "the reply streams")
    window.kill()
    again = open_window()
    wait_until(
        lambda: [status for *_, status in again.messages()] == ["complete", "interrupted"], "it is marked"
    )
    messages = again.messages()
    assert messages[0][1] == LONG_QUESTION
    assert messages[1][1]
    again.ask("Go on.")
    again.quit()


@pytest.mark.parametrize("fatal", ["SIGSEGV", "SIGKILL"])
def test_a_worker_killed_in_the_middle_of_a_reply_leaves_the_window_and_the_partial_reply(
    open_window: Open, fatal: str
) -> None:
    import signal

    window = open_window()
    window.type(LONG_QUESTION)
    window.press("Return")
    wait_until(lambda: streaming_text(window) != "", "the reply streams")
    window.worker().send_signal(signal.Signals[fatal])
    wait_until(lambda: window.messages()[-1][2] == "interrupted", "the partial reply is marked")
    assert window.messages()[-1][1]
    number = len(window.replies())
    window.type("Say hello.")
    window.press("Return")
    wait_until(
        lambda: window.messages()[-1][2] == "complete" or len(window.replies()) > number + 1,
        "a new worker answers",
    )
    assert [role for role, _, _ in window.messages()] == ["user", "assistant", "user", "assistant"]
    window.quit()


def test_a_second_start_raises_the_first_window_and_ends(open_window: Open) -> None:
    window = open_window()
    second = window.start()
    assert second.wait(60) == 0
    assert window.process.poll() is None
    window.ask("Hello")
    window.quit()
