"""What the full-text index is given of a text: words, and pairs of characters where there are no spaces between words."""

from __future__ import annotations

import re
from itertools import pairwise

from desktop.conversations.text_folding import folded

# Kana, ideographs and Hangul, with the marks that repeat or lengthen a character.
UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(f"[{UNSPACED}]+")


def indexed_words(text: str | None) -> str:
    """For the tokenizer, which splits at what is neither letter nor digit.

    A run of characters becomes its pairs and then its last character: 東京都 is 東京 京都 都. So any part of it is a run of
    tokens one after the other, and a single character the beginning of one. Deterministic for ever: what is removed
    from the index must be what was added.
    """
    if text is None:
        return ""
    words = folded(text)
    return (
        words
        if words.isascii()
        else _RUNS.sub(lambda run: f" {pairs(run.group())} {run.group()[-1]} ", words)
    )


def pairs(run: str) -> str:
    return " ".join(first + second for first, second in pairwise(run))
