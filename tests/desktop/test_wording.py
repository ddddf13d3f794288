from __future__ import annotations

import pytest

from desktop.wording import as_sentence, plain_tool_tip


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("the engine stopped (SIGSEGV)", "The engine stopped (SIGSEGV)."),
        ("Not saved: the disk is full.", "Not saved: the disk is full."),
        ("half.gguf is cut off: download it again", "half.gguf is cut off: download it again."),
        ("", ""),
    ],
)
def test_reasons_become_sentences_and_file_names_keep_their_spelling(message: str, sentence: str) -> None:
    assert as_sentence(message) == sentence


def test_a_tool_tip_never_takes_text_for_markup() -> None:
    assert plain_tool_tip("<img src=http://x>") == "<qt>&lt;img src=http://x&gt;</qt>"
