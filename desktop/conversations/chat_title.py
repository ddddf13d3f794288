"""What a chat is called until somebody names it."""

from __future__ import annotations

_TITLE_LENGTH = 48


def title_from(content: str) -> str:
    """The first words of a message, on one line."""
    words = " ".join(content.split())
    if len(words) <= _TITLE_LENGTH:
        return words
    start = words[:_TITLE_LENGTH]
    # Chinese and Japanese have no spaces to cut at.
    return (start.rpartition(" ")[0] or start) + "…"
