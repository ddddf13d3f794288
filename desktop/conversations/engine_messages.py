"""What the engine is told of a branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from desktop.conversations.records import MessageId, MessageStatus, StoredMessage
from inference import Message, TokenId


def messages_for_engine(branch: Iterable[StoredMessage], system_prompt: str = "") -> tuple[Message, ...]:
    """The messages of a branch, root first, as the next prompt, behind the chat's system prompt.

    Left out: replies without text, and a reply still streaming (the one being asked for). Replies cut short stay:
    the user has read them. User messages that then follow each other are joined, for many chat templates
    refuse two in a row.
    """
    return tuple(message for message, _ in _with_sources(branch, system_prompt))


def sources_for_engine(branch: Iterable[StoredMessage]) -> list[tuple[MessageId, ...]]:
    """For each of messages_for_engine(branch) the stored messages that it is."""
    sources: list[tuple[MessageId, ...]] = []
    last_role = ""
    for stored in branch:
        if _is_left_out(stored):
            continue
        if stored.role == "user" == last_role:
            sources[-1] = (*sources[-1], stored.id)
        else:
            sources.append((stored.id,))
        last_role = stored.role
    return sources


def _is_left_out(stored: StoredMessage) -> bool:
    return stored.role == "assistant" and (not stored.content or stored.status is MessageStatus.STREAMING)


def ids_to_keep(
    branch: Iterable[StoredMessage],
    message_ids: Sequence[tuple[TokenId, ...] | None],
    system_prompt: str = "",
) -> dict[MessageId, tuple[TokenId, ...]]:
    """Token ids that the engine made of the messages it was given (one entry for each), where they are news."""
    return {
        source: ids
        for (message, source), ids in zip(_with_sources(branch, system_prompt), message_ids, strict=False)
        if source is not None and ids and ids != message.token_ids and not _was_sampled(message)
    }


def _was_sampled(message: Message) -> bool:
    """The ids of a reply are those that the model wrote, whatever another model would make of the text."""
    return message.role == "assistant" and message.token_ids is not None


def _with_sources(
    branch: Iterable[StoredMessage], system_prompt: str
) -> list[tuple[Message, MessageId | None]]:
    """With each message the stored one that it is; None: it is several, or the system prompt."""
    messages: list[tuple[Message, MessageId | None]] = []
    if system_prompt.strip():
        messages.append((Message("system", system_prompt), None))
    for stored in branch:
        if _is_left_out(stored):
            continue
        if messages and stored.role == "user" and messages[-1][0].role == "user":
            messages[-1] = (Message("user", f"{messages[-1][0].content}\n\n{stored.content}"), None)
        else:
            messages.append((Message(stored.role, stored.content, stored.token_ids or None), stored.id))
    return messages
