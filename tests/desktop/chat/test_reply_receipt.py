"""The words of a receipt, and that docs/receipts.md explains them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from desktop.chat.reply_receipt import miss_words, reply_receipt
from inference import Miss, MissReason, PromptCounts
from tests.desktop.scripted_engine import TIMINGS

COUNTS = PromptCounts(num_prompt_tokens=1043, reused_tokens=0, restored_tokens=812, prefilled_tokens=231)
DIFFERENT = Miss(MissReason.TEXT_DIFFERS, 812, " dog", " cat")
PAGE = (Path(__file__).parents[3] / "docs" / "receipts.md").read_text()


def values(**changes: object) -> dict[str, str]:
    known = {
        "counts": COUNTS,
        "timings": replace(TIMINGS, queued_s=0.2, load_s=1.5, restore_s=0.0051),
        "bytes_read": 28_000_000,
        "miss": DIFFERENT,
        "is_private": False,
    }
    return {detail.label: detail.value for detail in reply_receipt(**(known | changes))}  # type: ignore[arg-type]


def test_a_receipt_says_where_tokens_came_from_what_it_took_and_why() -> None:
    assert values() == {
        "Reused": "0 tokens in memory",
        "Restored": "812 tokens from disk · 28 MB read · 5.1 ms",
        "Read (prefill)": "231 tokens · 0.02 s",
        "Waited": "0.20 s in the queue · 1.5 s for the model to load",
        "First token": "0.03 s, waiting not counted",
        "Why": "Read from token 812: the store goes on with “ cat” where this chat says “ dog”.",
    }


def test_a_reply_from_before_receipts_says_what_is_known_of_it() -> None:
    told = values(bytes_read=None, miss=None)
    assert told["Restored"] == "812 tokens from disk · 5.1 ms"
    assert "Why" not in told


@pytest.mark.parametrize("unknown", ["counts", "timings"])
def test_a_reply_that_was_killed_has_no_receipt(unknown: str) -> None:
    assert values(**{unknown: None}) == {}


def test_a_reply_that_was_stopped_before_its_first_token_has_none_to_tell_of() -> None:
    assert "First token" not in values(timings=replace(TIMINGS, ttft_s=None))


def test_a_store_that_had_less_than_memory_is_no_reason() -> None:
    assert "Why" not in values(counts=replace(COUNTS, reused_tokens=1000, restored_tokens=0))


def test_a_private_chat_is_its_own_reason() -> None:
    assert values(is_private=True)["Why"].startswith("This chat is private")


def test_one_token_is_singular() -> None:
    assert values(counts=replace(COUNTS, prefilled_tokens=1))["Read (prefill)"].startswith("1 token ")


def test_what_cannot_be_seen_of_a_token_is_made_visible() -> None:
    assert "“\\n”" not in miss_words(replace(DIFFERENT, prompt_text="\n\t"))
    assert "“↵⇥”" in miss_words(replace(DIFFERENT, prompt_text="\n\t"))


@pytest.mark.parametrize("reason", MissReason)
def test_every_reason_has_words_of_its_own_with_its_place(reason: MissReason) -> None:
    words = miss_words(Miss(reason, 4012, " dog", " cat"))
    assert "token 4,012" in words
    assert all(
        words != miss_words(Miss(other, 4012, " dog", " cat")) for other in MissReason if other is not reason
    )


@pytest.mark.parametrize("reason", MissReason)
def test_the_page_on_receipts_explains_every_reason(reason: MissReason) -> None:
    assert f"| {reason.value} |" in PAGE


@pytest.mark.parametrize("label", values())
def test_the_page_on_receipts_explains_every_label(label: str) -> None:
    assert f"**{label}**" in PAGE
