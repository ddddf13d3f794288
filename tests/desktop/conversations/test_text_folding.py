"""Folded text, and the way back from it to what was written."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.conversations.text_folding import folded, spans_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CAFÉ", "cafe"),
        (unicodedata.normalize("NFD", "Café"), "cafe"),
        ("ﬁne ＡＢＣ", "fine abc"),
        ("Ὀδυσσεύς", "οδυσσευσ"),
        ("שָׁלוֹם", "שלום"),
        ("がギ", "がギ"),
        (unicodedata.normalize("NFD", "한글がギ"), "한글がギ"),
        ("İstanbul", "istanbul"),
    ],
)
def test_case_accents_and_forms_make_no_difference(text: str, expected: str) -> None:
    assert folded(text) == expected


@pytest.mark.parametrize(
    ("text", "word", "marked"),
    [
        ("a CAFÉ!", "cafe", ["CAFÉ"]),
        ("x\n" + unicodedata.normalize("NFD", "Café é"), "e", [unicodedata.normalize("NFD", "é")] * 2),
        ("two ﬁne\nﬁsh", "fi", ["ﬁ", "ﬁ"]),
        ("😀 naïve 😀", "naive", ["naïve"]),
        (unicodedata.normalize("NFD", "한글"), "글", [unicodedata.normalize("NFD", "글")]),
    ],
)
def test_a_match_is_found_where_it_was_written(text: str, word: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in spans_in(text, re.compile(word))] == marked


@given(st.text())
def test_spans_lie_in_order_within_any_text(text: str) -> None:
    spans = list(spans_in(text, re.compile(r"\w+")))
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert spans == sorted(spans)
