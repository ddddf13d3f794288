"""Very long text in pieces that are laid out one by one."""

from __future__ import annotations

from collections.abc import Iterator

PIECE_CHARACTERS = 4000


def text_pieces(text: str) -> Iterator[tuple[str, str]]:
    """Pieces with what joins each to the one before: a line end where possible, else nothing."""
    start, joiner = 0, ""
    while start < len(text):
        end = start + PIECE_CHARACTERS
        newline = text.rfind("\n", start, end) if end < len(text) else -1
        end = newline if newline > start else min(end, len(text))
        yield text[start:end], joiner
        joiner = "\n" if text[end : end + 1] == "\n" else ""
        start = end + len(joiner)
