"""What the engine is told: messages of a chat. Pure values, without the ids they are stored under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType

TokenId = NewType("TokenId", int)
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat.

    token_ids are the ids the model itself sampled for `content` (assistant messages only, without the
    end-of-turn token); the next prompt then continues from exactly these ids. None: tokenise the text.
    """

    role: Role
    content: str
    token_ids: tuple[TokenId, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", well_formed(self.content))


def well_formed(text: str) -> str:
    """The text with "?" for lone surrogates (from a broken paste), which no encoding can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
