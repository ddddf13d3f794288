"""The part of a text that shows why it was found."""

from __future__ import annotations

import re
from dataclasses import dataclass

from desktop.conversations.search_query import SearchQuery
from desktop.conversations.text_folding import TextSpan, folded, spans_in

_BEFORE = 36
_LENGTH = 140
# Marks of markdown that one does not see in the chat: emphasis, code, headings, quotes, list items.
_MARKDOWN = re.compile(r"^\s*(?:#+ |> |[-*+] )+|\*\*|__|`+|\*(?=\w)|(?<=[\w.!?,])\*")
_MAX_LINES = 20_000
"""Of a text; what is further down is found, but not shown."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """One line. marks: what was searched for, in characters of `text`."""

    text: str
    marks: tuple[TextSpan, ...]


def best_snippet(text: str, query: SearchQuery) -> Snippet:
    """Of the line that has most of the terms; the text's beginning if none has any."""
    patterns = query.patterns
    best, most = "", 0
    for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]:
        if line and not line.isspace():
            best = best or line
            compared = folded(line)
            count = sum(pattern.search(compared) is not None for pattern in patterns)
            if count > most:
                best, most = line, count
                if count == len(patterns):
                    break
    best = _MARKDOWN.sub("", best)
    first = next(iter(spans_in(best, query.pattern)), TextSpan(0, 0)) if most else TextSpan(0, 0)
    shown = _window(best, first)
    return Snippet(shown, tuple(spans_in(shown, query.pattern)) if most else ())


def _window(line: str, first: TextSpan) -> str:
    """Some words before the match and what fits behind it, white space as single spaces."""
    start = max(0, first.start - _BEFORE)
    if start:
        space = line.find(" ", start, first.start)
        start = space + 1 if space >= 0 else start
    end = start + _LENGTH
    before = "…" if start else ""
    after = "…" if end < len(line) else ""
    return before + " ".join(line[start:end].split()) + after
