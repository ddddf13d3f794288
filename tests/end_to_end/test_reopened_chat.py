"""What the application promises, seen through its window."""

import signal
from collections.abc import Callable

import pytest

from tests.end_to_end.real_window import RealWindow, wait_until

pytestmark = pytest.mark.end_to_end
Open = Callable[..., RealWindow]

LONG_QUESTION = "Tell me a very long story about a lighthouse keeper, with many chapters."


def chat_and_quit(window: RealWindow) -> int:
    """Two questions and their answers; how many tokens the model has read and written then."""
    window.ask("Say hello in one sentence.")
    last = window.ask("And now say goodbye.")
    window.quit()
    return int(last["counts"]["num_prompt_tokens"] + last["num_generation_tokens"])


def test_a_chat_closed_and_reopened_is_in_memory_before_one_asks(open_window: Open) -> None:
    read_so_far = chat_and_quit(open_window())
    second = open_window()
    wait_until(lambda: "prefetch of a chat of 4 messages" in second.log(), "the chat is prefetched")
    counts = second.ask("What did you say first?")["counts"]
    assert counts["reused_tokens"] >= read_so_far - 1
    assert counts["restored_tokens"] == 0
    assert counts["prefilled_tokens"] <= counts["num_prompt_tokens"] - read_so_far + 1
    assert [role for role, _, _ in second.messages()] == ["user", "assistant"] * 3
    second.quit()


def test_a_question_asked_before_anything_could_be_prefetched_is_restored_from_disk(
    open_window: Open,
) -> None:
    read_so_far = chat_and_quit(open_window())
    second = open_window(hold_engine=True)
    number = len(second.replies())
    second.type("What did you say first?")
    second.press("Return")
    wait_until(lambda: len(second.messages()) == 6, "the question is on disk")
    assert "prefetch" not in second.log()
    second.worker().resume()
    wait_until(lambda: len(second.replies()) > number, "it is answered")
    counts = second.replies()[number]["counts"]
    assert counts["reused_tokens"] == 0  # another process: there is nothing in its memory
    assert counts["restored_tokens"] >= read_so_far - 1
    assert counts["prefilled_tokens"] <= counts["num_prompt_tokens"] - read_so_far + 1
    second.quit()


def test_a_private_chat_leaves_nothing_in_the_kv_store(open_window: Open) -> None:
    window = open_window()
    window.press("ctrl+shift+n")
    window.ask("Say hello in one sentence.")
    window.quit()
    assert not list((window.data / "kv").rglob("*.kv"))
    assert [role for role, _, _ in window.messages()] == ["user", "assistant"]


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
    wait_until(lambda: window.streaming_text() != "", "the reply streams")
    worker = window.worker()
    window.quit()
    assert not worker.is_running()
    (role, content, status) = window.messages()[-1]
    assert role == "assistant"
    assert content
    assert status in ("interrupted", "cancelled", "complete")


@pytest.mark.parametrize("fatal", ["SIGSEGV", "SIGKILL"])
def test_a_worker_killed_in_the_middle_of_a_reply_leaves_the_window_and_the_partial_reply(
    open_window: Open, fatal: str
) -> None:
    window = open_window()
    window.type(LONG_QUESTION)
    window.press("Return")
    wait_until(lambda: window.streaming_text() != "", "the reply streams")
    window.worker().send_signal(signal.Signals[fatal])
    wait_until(lambda: window.messages()[-1][2] == "interrupted", "the partial reply is marked")
    assert window.messages()[-1][1]
    window.type("Say hello.")
    window.press("Return")
    wait_until(lambda: window.reply_has_begun(), "a new worker answers")
    assert [role for role, _, _ in window.messages()] == ["user", "assistant", "user", "assistant"]
    window.quit()


def test_a_second_start_raises_the_first_window_and_ends(open_window: Open) -> None:
    window = open_window()
    second = window.start()
    assert second.wait(60) == 0
    assert window.process.poll() is None
    window.ask("Hello")
    window.quit()


def test_two_chats_are_answered_side_by_side(open_window: Open) -> None:
    window = open_window()
    window.type(LONG_QUESTION)
    window.press("Return")
    wait_until(lambda: window.streaming_text() != "", "the first reply streams")
    window.press("ctrl+n")
    window.type("Name many animals, one after the other.")
    window.press("Return")
    wait_until(
        lambda: [bool(text) for role, text, _ in window.messages() if role == "assistant"] == [True, True],
        "both replies are being written",
    )
    window.quit()
