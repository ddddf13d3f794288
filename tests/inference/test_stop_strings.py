"""Stop strings: the same end however the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.stop_strings import StopStrings

LETTERS = st.text("abc", max_size=40)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def fed(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    """What was shown after each piece and at the end, and which stop string ended it."""
    stop_strings = StopStrings(stops)
    shown = [stop_strings.append(piece) for piece in pieces]
    return [*shown, stop_strings.finish()], stop_strings.found


def first_stop(stops: list[str], text: str) -> tuple[str, str | None]:
    """By definition: the shortest beginning of text that ends with a stop string, without the longest such."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(STOPS, LETTERS, st.lists(st.integers(0, 40)))
def test_any_cutting_gives_the_text_before_the_first_stop_string(
    stops: list[str], text: str, cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    shown, found = fed(stops, pieces)
    assert ("".join(shown), found) == first_stop(stops, text)


@given(STOPS, LETTERS)
def test_no_more_is_held_back_than_may_still_become_a_stop_string(stops: list[str], text: str) -> None:
    stop_strings = StopStrings(stops)
    shown = ""
    for end, character in enumerate(text, 1):
        shown += stop_strings.append(character)
        if stop_strings.found is not None:
            return
        held = text[len(shown) : end]
        longest = max(
            (
                part
                for start in range(end)
                for part in [text[start:end]]
                if any(stop.startswith(part) and stop != part for stop in stops)
            ),
            key=len,
            default="",
        )
        assert held == longest


def test_a_stop_string_over_three_tokens_is_not_shown() -> None:
    assert fed(["<|end|>"], ["Hello <", "|en", "d|> more", "!"]) == (["Hello ", "", "", "", ""], "<|end|>")


def test_what_only_began_like_one_is_shown_when_it_goes_on_otherwise_or_the_reply_ends() -> None:
    assert fed(["STOP"], ["a ST", "ep. ST"]) == (["a ", "STep. ", "ST"], None)


@pytest.mark.parametrize("text", ["", "anything at all"])
def test_without_stop_strings_every_text_passes_at_once(text: str) -> None:
    assert fed([], [text]) == ([text, ""], None)
