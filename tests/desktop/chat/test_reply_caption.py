from __future__ import annotations

import pytest

from desktop.chat.reply_caption import reasoning_words, reply_caption
from inference import FinishReason, Reasoning
from tests.desktop.scripted_engine import COUNTS


def test_a_reply_says_what_it_cost() -> None:
    caption = reply_caption(
        finish_reason=FinishReason.STOP, counts=COUNTS, ttft_s=0.03, decode_tokens_per_second=41.2
    )
    assert caption == "reused 4,012 · restored 0 · read 31 · first token 0.03 s · 41.2 tok/s"


@pytest.mark.parametrize(
    ("reason", "mark"),
    [
        (FinishReason.CANCELLED, "Stopped"),
        (FinishReason.LENGTH, "Reply limit reached"),
        (FinishReason.CONTEXT, "Context full"),
    ],
)
def test_an_early_end_is_named_first(reason: FinishReason, mark: str) -> None:
    assert reply_caption(finish_reason=reason, counts=COUNTS).startswith(f"{mark} · reused")


def test_nothing_is_said_of_a_reply_that_was_killed() -> None:
    assert reply_caption() == ""


def test_of_imported_reasoning_only_what_is_known_is_said() -> None:
    assert reasoning_words(Reasoning("Hm", 0, 7.0, False), is_open=False) == "Thought for 7.0 s"
    assert reasoning_words(Reasoning("Hm", 0, 0.0, False), is_open=False) == "Thoughts"
    assert reasoning_words(Reasoning("Hm", 12, 7.0, False), is_open=False) == "Thought for 7.0 s · 12 tokens"
