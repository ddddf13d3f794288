"""One message as the transcript shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MessageRole = Literal["user", "assistant", "notice"]
MessageState = Literal["done", "queued", "reading", "writing", "cancelled", "interrupted", "failed"]
TokenOrigin = Literal["reused", "restored", "prefilled"]


@dataclass(frozen=True, slots=True)
class Detail:
    """A line of a message's details: a label, its value, and what is said of tokens marked as everywhere."""

    label: str
    value: str
    origin: TokenOrigin | None = None


@dataclass(frozen=True, slots=True)
class ShownReasoning:
    """words: the line that folds it away, as "Thought for 3.2 s"."""

    text: str
    words: str


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """What is shown for one message; the conversation store keeps the message itself."""

    key: int
    """Stays the same for as long as the chat is open."""
    role: MessageRole
    text: str
    state: MessageState = "done"
    caption: str = ""
    """A small line under the text: "reused 4,012 · read 31 · first token 0.03 s"."""
    details: tuple[Detail, ...] = ()
    """What a click on the caption unfolds."""
    error: str = ""
    """Shown as a card under the text: what happened, what was kept, what to do."""
    actions: tuple[tuple[str, str], ...] = ()
    """(action id, label) of the small buttons under the message, as ("retry", "Try again")."""
    menu: tuple[tuple[str, str], ...] = ()
    """As actions, for the context menu."""
    mark: str = ""
    """A line above the message, as "The model no longer sees the 12 messages above"."""
    standing: str = ""
    """Said before the caption: what the message is to the model, as "Pinned"."""
    reasoning: ShownReasoning | None = None
    """Stands above the text and is no part of it: copying leaves it out."""
