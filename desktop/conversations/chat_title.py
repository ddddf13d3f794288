"""What a chat is called until somebody names it."""

from __future__ import annotations

import unicodedata

_TITLE_LENGTH = 48
# Within emoji and in scripts that join or part letters by them.
_JOINERS = "\u200c\u200d"


def title_from(content: str) -> str:
    """The first words of a message, on one line."""
    # What is not to be seen, or turns the direction of what follows, is no title's.
    shown = "".join(character for character in content if character.isspace() or not _is_control(character))
    words = " ".join(shown.split())
    if len(words) <= _TITLE_LENGTH:
        return words
    start = words[:_TITLE_LENGTH]
    # Chinese and Japanese have no spaces to cut at.
    return (start.rpartition(" ")[0] or start) + "…"


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn") and character not in _JOINERS
