"""Where in a message something is found, as it is shown and without laying it out."""

from __future__ import annotations

import re

from desktop.chat.message_layout import MessageLayout
from desktop.chat.text_marks import MarkPlace, marks_in_blocks
from desktop.conversations.text_folding import folded

_NO_LETTERS = re.compile(r"[\W_]+")
# Between words that are shown together there may be an address.
_MAY_HIDE = ("](", "][")


def letters_of(text: str) -> str:
    """What markdown cannot part: folded letters and digits alone."""
    return _NO_LETTERS.sub("", folded(text))


def may_have(message: MessageLayout, letters: str) -> bool:
    """Quick: False only if text with these letters is surely not shown."""
    shown = message.message
    for text in (shown.text, shown.reasoning.text if shown.reasoning is not None else ""):
        if text and (letters in letters_of(text) or any(hiding in text for hiding in _MAY_HIDE)):
            return True
    return False


def marks_in(message: MessageLayout, pattern: re.Pattern[str]) -> list[MarkPlace]:
    """In reading order: reasoning stands above the text."""
    key = message.message.key
    return [
        *marks_in_blocks(key, "reasoning", message.reasoning_blocks(), pattern),
        *marks_in_blocks(key, "text", message.text_blocks(), pattern),
    ]
