"""Text as it is compared: case, accents and compatible forms of a character make no difference."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

# Marks that a reader leaves out when typing. Not those that make another letter of it, as the dots of が do.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff]"
)
# A character and what joins it: folding looks at no more than that.
_CLUSTERS = re.compile(
    "[\u1100-\u115f]?[^\n][\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1160-\u11ff\u3099\u309a]*|\n"
)


class TextSpan(NamedTuple):
    """Characters start to end, the end excluded."""

    start: int
    end: int


def folded(text: str) -> str:
    """Both sides of every comparison go through this one."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed)).lower().replace("ς", "σ")


def spans_in(text: str, pattern: re.Pattern[str]) -> Iterator[TextSpan]:
    """Where `pattern`, which is written for folded text, matches within lines of `text`; empty matches are left out."""
    start = 0
    for line in text.split("\n"):
        in_folded = [found.span() for found in pattern.finditer(folded(line)) if found.group()]
        if in_folded:
            origins = None if line.isascii() else _origins(line)
            for first, last in in_folded:
                if origins is not None:
                    # The whole of the last character, which may have folded into several.
                    first, last = origins[first][0], origins[last - 1][1]
                yield TextSpan(start + first, start + last)
        start += len(line) + 1


def _origins(line: str) -> list[tuple[int, int]]:
    """For each character of folded(line) where the cluster it came from begins and ends in `line`."""
    return [cluster.span() for cluster in _CLUSTERS.finditer(line) for _ in folded(cluster.group())]
