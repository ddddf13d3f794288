"""What can go wrong when chats go out or come in. `str()` of each is one line for the user."""

from __future__ import annotations


class ExchangeError(Exception):
    """The whole import or export cannot be done."""


class NotReadable(Exception):
    """A chat, or a file among others, cannot be imported; `str()` is the reason as the report gives it."""
