"""A window killed at any moment has lost nothing. Reported as nomic-ai/gpt4all#3145, #3406, #727."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from desktop.conversations import ConversationStore
from inference.kvcache.block_store import BlockStore
from tests.end_to_end.conftest import Open
from tests.end_to_end.real_window import RealWindow, wait_until

pytestmark = pytest.mark.end_to_end

QUESTION = "Tell me a very long story about a lighthouse keeper, with many chapters."


def assert_sound(window: RealWindow) -> None:
    """Of a window that is gone: its chats and its store are whole."""
    assert window.damage() == []
    store = BlockStore(window.data / "kv", 10**9)
    assert store.verify().removed == 0
    store.close(10)


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1])
def test_killed_right_after_enter_the_message_is_sent_or_still_in_the_box(
    open_window: Open, delay_s: float
) -> None:
    window = open_window()
    window.type(QUESTION)
    wait_until(lambda: window.drafts() == [QUESTION], "the draft is on disk")
    window.press("Return")
    time.sleep(delay_s)
    window.kill()
    assert_sound(window)
    sent = [content for role, content, _ in window.messages() if role == "user"]
    assert (sent, window.drafts()) in (([QUESTION], [""]), ([], [QUESTION]))
    again = open_window()
    if not sent:
        again.press("Return")
    else:
        wait_until(lambda: again.messages()[-1][2] != "streaming", "what was begun is marked")
        again.type("Go on.")
        again.press("Return")
    wait_until(again.reply_has_begun, "it is answered")
    users = [content for role, content, _ in again.messages() if role == "user"]
    assert users == ([QUESTION, "Go on."] if sent else [QUESTION])
    again.quit()


def test_killed_before_the_engine_has_even_heard_of_it_the_message_is_there(open_window: Open) -> None:
    window = open_window(hold_engine=True)
    window.type(QUESTION)
    window.press("Return")
    wait_until(lambda: ("user", QUESTION, "complete") in window.messages(), "the message is on disk")
    worker = window.worker()
    window.kill()
    # It was stopped before its first line, so that it cannot notice by itself.
    worker.kill()
    assert_sound(window)
    again = open_window()
    assert again.messages()[0] == ("user", QUESTION, "complete")
    again.type("Go on.")
    again.press("Return")
    wait_until(again.reply_has_begun, "it goes on")
    again.quit()


def test_killed_in_the_middle_of_a_reply_what_was_written_is_kept_and_marked(open_window: Open) -> None:
    window = open_window()
    window.type(QUESTION)
    window.press("Return")
    wait_until(lambda: window.streaming_text() != "", "the reply streams")
    window.kill()
    assert_sound(window)
    written = window.messages()[-1][1]
    again = open_window()
    wait_until(
        lambda: [status for *_, status in again.messages()] == ["complete", "interrupted"], "it is marked"
    )
    assert [content for _, content, _ in again.messages()] == [QUESTION, written]
    again.type("Go on.")
    again.press("Return")
    wait_until(again.reply_has_begun, "it goes on")
    again.quit()


def test_killed_50_ms_after_the_end_of_a_reply_all_of_it_is_there(open_window: Open) -> None:
    window = open_window()
    account = window.ask("Say hello in one sentence.")
    time.sleep(0.05)
    window.kill()
    assert_sound(window)
    [_, (role, written, status)] = window.messages()
    assert (role, status) == ("assistant", "complete")
    assert window.num_token_ids()[-1] == account["num_generation_tokens"]
    again = open_window()
    counts = again.ask("And now say goodbye.")["counts"]
    assert again.messages()[1][1:] == (written, "complete")
    kept = counts["reused_tokens"] + counts["restored_tokens"] + counts["prefilled_tokens"]
    assert kept == counts["num_prompt_tokens"]
    again.quit()


def test_stopped_twice_in_a_long_prefill_sent_again_and_closed_everything_ends(open_window: Open) -> None:
    # Reported as nomic-ai/gpt4all#3151, #2070; ParisNeo/lollms-webui#351; oobabooga/textgen#3573.
    first = open_window()
    first.type("x")
    wait_until(lambda: first.drafts() == ["x"], "the chat is on disk")
    first.quit()
    with closing(ConversationStore.open(first.data / "chats.sqlite3")) as chats:
        [chat] = chats.conversations()
        chats.set_draft(chat.id, "The quick brown fox jumps. " * 660)
    # Nothing of it is read before Enter.
    settings = first.data / "settings.toml"
    text = settings.read_text()
    assert 'read_drafts = "always"' in text
    settings.write_text(text.replace('read_drafts = "always"', 'read_drafts = "never"'))
    window = open_window()
    worker = window.worker()

    def is_sent() -> bool:
        # In an empty box, before the draft is there, it does nothing.
        window.press("Return")
        return len(window.messages()) == 2

    wait_until(is_sent, "the question is on disk")
    window.press("Escape", "Escape")
    wait_until(lambda: window.messages()[-1][2] == "cancelled", "the reply is stopped")
    window.type("Say hello.")
    window.press("Return")
    wait_until(lambda: len(window.messages()) == 4, "the next question is on disk")
    window.quit()
    assert not worker.is_running()
    assert_sound(window)
    roles_and_status = [(role, status) for role, _, status in window.messages()]
    assert roles_and_status[:3] == [("user", "complete"), ("assistant", "cancelled"), ("user", "complete")]
    assert roles_and_status[3][1] in ("interrupted", "cancelled", "complete")
