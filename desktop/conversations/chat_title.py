"""What a chat is called until somebody names it."""

from __future__ import annotations

import re
import unicodedata

_TITLE_LENGTH = 48
_MODEL_TITLE_LENGTH = 64
_MOST_MODEL_WORDS = 8
# Models like to set a title in bold, or to say that it is one.
_MARKS = re.compile(r"[*_`#]+")
_LABEL = re.compile(
    r"^\s*(?:the\s+)?(?:conversation\s+|chat\s+)?(?:title|name)\s*(?::|is\b:?)\s*", re.IGNORECASE
)
_QUOTES = " \"'“”„«»‘’「」"
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


def title_of_reply(text: str) -> str | None:
    """What a model says that a chat should be called, as a title; None: it said something else."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    title = one_line(_LABEL.sub("", _MARKS.sub("", first)).strip()).strip(_QUOTES)
    title = title.removesuffix(".").strip()
    if len(title) > _MODEL_TITLE_LENGTH or len(title.split()) > _MOST_MODEL_WORDS:
        return None
    if not any(letter.isalnum() for letter in title):
        return None
    return title


def one_line(text: str) -> str:
    """As a title is shown: what is not to be seen, or turns the direction of what follows, is no title's."""
    shown = "".join(character for character in text if character.isspace() or not _is_control(character))
    return " ".join(shown.split())


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn") and character not in _JOINERS
