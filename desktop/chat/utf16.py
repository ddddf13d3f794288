"""Positions as Qt counts them: in UTF-16 code units, where an emoji is two."""

from __future__ import annotations


def utf16_length(text: str) -> int:
    """The number of UTF-16 code units."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_slice(text: str, start: int, end: int) -> str:
    """The text between two positions counted in UTF-16 code units; half of an emoji is left out."""
    if text.isascii():
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * end]
    return units.decode("utf-16-le", "ignore")
