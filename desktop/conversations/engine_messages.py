"""What the engine is told of a branch."""

from __future__ import annotations

from collections.abc import Iterable

from desktop.conversations.records import MessageStatus, StoredMessage
from inference import Message


def messages_for_engine(branch: Iterable[StoredMessage]) -> tuple[Message, ...]:
    """The messages of a branch, root first, as the next prompt.

    Left out: replies without text, and a reply still streaming (the one being asked for). Replies cut short stay:
    the user has read them. User messages that then follow each other are joined, for many chat templates
    refuse two in a row.
    """
    messages: list[Message] = []
    for stored in branch:
        if stored.role == "assistant" and (not stored.content or stored.status is MessageStatus.STREAMING):
            continue
        if messages and stored.role == "user" and messages[-1].role == "user":
            messages[-1] = Message("user", f"{messages[-1].content}\n\n{stored.content}")
        else:
            messages.append(Message(stored.role, stored.content, stored.token_ids or None))
    return tuple(messages)
