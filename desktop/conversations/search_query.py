"""What somebody types to search, as the full-text index is asked and as it is found again in a text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from desktop.conversations.search_words import UNSPACED, pairs
from desktop.conversations.text_folding import folded

_TERMS = re.compile(r'"([^"]*)"|([^\s"]+)')
_PIECES = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_WORD_BEGINS = rf"(?:(?<![^\W_])|(?<=[{UNSPACED}]))"
_WORD_ENDS = rf"(?:(?![^\W_])|(?=[{UNSPACED}]))"
MAX_TERMS = 12


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """pieces: folded words, or runs of characters without spaces. is_whole: it stood in quotation marks, and does not
    match the beginning of a longer word."""

    pieces: tuple[str, ...]
    is_whole: bool

    def match(self, *, whole_words: bool) -> str:
        """One phrase of FTS5's query language, in its quotation marks: nothing in it can be an operator."""
        *before, last = self.pieces
        words = [f"{pairs(piece)} {piece[-1]}" if _is_run(piece) else piece for piece in before]
        words.append(pairs(last) or last if _is_run(last) else last)
        only_begins = _is_run(last) and len(last) == 1
        star = "*" if only_begins or not (self.is_whole or whole_words or _is_run(last)) else ""
        return f'"{" ".join(" ".join(words).split())}"{star}'

    @property
    def pattern(self) -> str:
        """Of a regular expression for folded text."""
        begins = "" if _is_run(self.pieces[0]) else _WORD_BEGINS
        ends = _WORD_ENDS if self.is_whole and not _is_run(self.pieces[-1]) else ""
        return begins + r"[\W_]*".join(map(re.escape, self.pieces)) + ends


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A message is found if it has all the terms, in any order. No terms: nothing is."""

    terms: tuple[SearchTerm, ...]

    @classmethod
    def parse(cls, typed: str) -> SearchQuery:
        """Any text will do. "Quoted words" stand together; other words may be the beginning of longer ones."""
        terms = []
        for quoted, word in _TERMS.findall(folded(typed)):
            pieces = tuple(_PIECES.findall(quoted or word))
            if pieces:
                terms.append(SearchTerm(pieces, is_whole=bool(quoted)))
        return cls(tuple(dict.fromkeys(terms))[:MAX_TERMS])

    def match(self, *, whole_words: bool) -> str:
        """For FTS5; never a syntax error, but empty if there are no terms."""
        return " AND ".join(term.match(whole_words=whole_words) for term in self.terms)

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """One for each term, for folded text."""
        return tuple(re.compile(term.pattern) for term in self.terms)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Any of the terms, for folded text; nothing if there are none."""
        # The longest first: of "in" and "inside" it is the longer word that is marked.
        longest_first = sorted((term.pattern for term in self.terms), key=len, reverse=True)
        return re.compile("|".join(longest_first) or "(?!)")


def _is_run(piece: str) -> bool:
    return re.match(f"[{UNSPACED}]", piece) is not None
