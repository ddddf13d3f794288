"""Qt's positions count an emoji as two."""

import pytest

from desktop.chat.utf16 import utf16_length, utf16_slice


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("é漢", 2), ("🔥", 2), ("a🔥b", 4)])
def test_length_counts_code_units(text: str, length: int) -> None:
    assert utf16_length(text) == length


def test_a_slice_is_cut_at_code_units() -> None:
    assert utf16_slice("a🔥b漢", 1, 3) == "🔥"
    assert utf16_slice("a🔥b漢", 3, 5) == "b漢"


def test_half_an_emoji_is_left_out() -> None:
    assert utf16_slice("a🔥b", 0, 2) == "a"
