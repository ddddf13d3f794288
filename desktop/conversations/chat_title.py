"""What a chat is called until somebody names it."""

from __future__ import annotations

import unicodedata

_TITLE_LENGTH = 48
# Within emoji and in scripts that join or part letters by them.
_JOINERS = "\u200c\u200d"


def title_from(content: str) -> str:
    """The first words of a message, on one line."""
    words = one_line(content)
    if len(words) <= _TITLE_LENGTH:
        return words
    start = words[:_TITLE_LENGTH]
    # Chinese and Japanese have no spaces to cut at.
    return (start.rpartition(" ")[0] or start) + "…"


def one_line(text: str) -> str:
    """As a title is shown: what is not to be seen, or turns the direction of what follows, is no title's."""
    shown = "".join(character for character in text if character.isspace() or not _is_control(character))
    return " ".join(shown.split())


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn") and character not in _JOINERS
