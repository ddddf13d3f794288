"""Messages from elsewhere as whole sentences."""

from __future__ import annotations

import html


def as_sentence(message: str) -> str:
    """The engine's one-line reasons, which a command line puts after a colon: capital first, full stop last."""
    text = message.strip()
    if not text:
        return text
    ending = "" if text[-1] in ".!?…" else "."
    first_word = text.split(maxsplit=1)[0]
    # A file name keeps its spelling.
    start = text[0].upper() if first_word.isalpha() else text[0]
    return f"{start}{text[1:]}{ending}"


def plain_menu_text(text: str) -> str:
    """As it is: in menus an ampersand marks a key."""
    return text.replace("&", "&&")


def plain_tool_tip(text: str) -> str:
    """A tool tip that shows the text as it is: Qt takes what looks like markup for markup, images included."""
    return f"<qt>{html.escape(text)}</qt>"
