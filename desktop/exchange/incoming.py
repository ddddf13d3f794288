"""Chats on their way in, and how their message trees are put together from parent links of any kind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from desktop.conversations.chat_title import title_from
from desktop.conversations.records import MessageStatus
from desktop.conversations.rows import clean_text, now_us
from desktop.conversations.whole_chats import TreeMessage, WholeChat
from desktop.exchange.errors import NotReadable
from inference import Role
from inference.reasoning import REASONING_MARKERS, ReasoningSplitter

_MARK_LEFT = re.compile(r"\[[^\[\]]{0,200}: not imported\]")
_IN_CIRCLE = "message whose parent links go in a circle"
_MAX_SPLIT_CHARACTERS = 2_000_000
_SPLIT_STEP = 4096

Notes = Counter[str]
"""What of a chat did not come in, and how often."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one message of another program says. error: why it was never finished."""

    role: Role
    content: str
    reasoning: str = ""
    reasoning_s: float = 0.0
    created_us: int | None = None
    model: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """piece None: nothing to be seen of it, and what follows it follows its parent."""

    id: str
    parent_id: str | None
    piece: Piece | None


@dataclass(slots=True)
class IncomingChat:
    """kind: the program it comes from. notes: what was left out, which the report tells."""

    kind: str
    title: str
    chat: WholeChat
    notes: Notes = field(default_factory=Counter)


@dataclass(slots=True)
class _Message:
    parent: int | None
    pieces: list[Piece]


def incoming_chat(
    kind: str,
    *,
    source_id: str,
    title: str,
    nodes: Sequence[SourceNode],
    head_id: str | None,
    notes: Notes,
    created_us: int | None = None,
    updated_us: int | None = None,
    system_prompt: str = "",
    columns: dict[str, Any] | None = None,
) -> IncomingChat:
    """source_id: the chat's own there; empty: it has none. columns: further ones of the chat.

    Raises NotReadable if there is no message in it.
    """
    messages, head = _tree(nodes, head_id, notes)
    if not system_prompt and messages:
        system_prompt, messages, head = _without_system_prompt(messages, head)
    if not messages:
        raise NotReadable(
            "its messages' parent links go in a circle" if notes[_IN_CIRCLE] else "it has no messages"
        )
    times = [
        piece.created_us for message in messages for piece in message.pieces if piece.created_us is not None
    ]
    created = created_us or min(times, default=None) or now_us()
    updated = max(updated_us or 0, max(times, default=0)) or created
    first = next((m.pieces[0].content for m in messages if m.pieces[0].role == "user"), "")
    title = title or title_from(_MARK_LEFT.sub("", first[:1000]))
    chat = WholeChat(
        columns={
            **(columns or {}),
            "title": clean_text(title),
            "created_at": created,
            "updated_at": updated,
            "system_prompt": clean_text(system_prompt),
        },
        messages=tuple(TreeMessage(m.parent, _columns(m.pieces, created)) for m in messages),
        head=head,
        origin=clean_text(f"{kind}:{source_id}") if source_id else "",
    )
    return IncomingChat(kind, title, chat, notes)


def _without_system_prompt(
    messages: list[_Message], head: int | None
) -> tuple[str, list[_Message], int | None]:
    """A system message before all others is not one of them."""
    first = messages[0].pieces[0]
    if first.role != "system" or any(message.parent is None for message in messages[1:]):
        return "", messages, head
    rest = messages[1:]
    for message in rest:
        message.parent = message.parent - 1 if message.parent else None
    if rest and not head:
        return first.content, rest, _newest(rest)
    return first.content, rest, None if head is None else head - 1


def split_reasoning(text: str) -> tuple[str, str]:
    """Answer and reasoning of a reply that may hold both, told apart by the tags of this."""
    if len(text) > _MAX_SPLIT_CHARACTERS or not any(marker in text for marker in REASONING_MARKERS):
        return text, ""
    splitter = ReasoningSplitter()
    # What it holds back it copies, so it is fed as a reply would come.
    pieces = (text[at : at + _SPLIT_STEP] for at in range(0, len(text), _SPLIT_STEP))
    deltas = [*map(splitter.feed, pieces), splitter.finish()]
    return "".join(d.answer for d in deltas), "".join(d.reasoning for d in deltas)


def _tree(
    nodes: Sequence[SourceNode], head_id: str | None, notes: Notes
) -> tuple[list[_Message], int | None]:
    by_id: dict[str, SourceNode] = {}
    for node in nodes:
        if node.id in by_id:
            notes["message with an id that another one has"] += 1
        else:
            by_id[node.id] = node
    children: dict[str | None, list[SourceNode]] = defaultdict(list)
    for node in by_id.values():
        children[node.parent_id if node.parent_id in by_id else None].append(node)
    order: list[SourceNode] = []
    stack = children[None][::-1]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children[node.id]))
    if len(order) < len(by_id):
        notes[_IN_CIRCLE] += len(by_id) - len(order)
    return _merged(order, head_id)


def _merged(order: Sequence[SourceNode], head_id: str | None) -> tuple[list[_Message], int | None]:
    """Replies that go on in a message of their own (a tool was called in between) become one."""
    seen: dict[str | None, str | None] = {None: None}
    for node in order:
        above = seen.get(node.parent_id)
        seen[node.id] = above if node.piece is None else node.id
    followers = Counter(seen.get(node.parent_id) for node in order if node.piece is not None)
    messages: list[_Message] = []
    place: dict[str | None, int | None] = {None: None}
    for node in order:
        above = seen.get(node.parent_id)
        at = place[above]
        if node.piece is None:
            continue
        if (
            at is not None
            and node.piece.role == "assistant" == messages[at].pieces[-1].role
            and followers[above] == 1
        ):
            messages[at].pieces.append(node.piece)
            place[node.id] = at
            continue
        place[node.id] = len(messages)
        messages.append(_Message(at, [node.piece]))
    if not messages:
        return [], None
    head = place[seen[head_id]] if head_id in seen else None
    return messages, _newest(messages) if head is None else head


def _newest(messages: Sequence[_Message]) -> int:
    """The end of the branch that was written last."""
    inner = {message.parent for message in messages}
    leaves = [index for index in range(len(messages)) if index not in inner]
    return max(leaves, key=lambda index: (messages[index].pieces[-1].created_us or 0, index))


def _columns(pieces: Sequence[Piece], chat_created_us: int) -> dict[str, Any]:
    created = next((piece.created_us for piece in pieces if piece.created_us), chat_created_us)
    columns: dict[str, Any] = {
        "role": pieces[0].role,
        "status": MessageStatus.COMPLETE.value,
        "created_at": created,
        "updated_at": pieces[-1].created_us or created,
        "content": clean_text("\n\n".join(piece.content for piece in pieces if piece.content)),
    }
    if error := next((piece.error for piece in pieces if piece.error), ""):
        columns |= {"status": MessageStatus.FAILED.value, "error": clean_text(error)}
    if model := next((piece.model for piece in reversed(pieces) if piece.model), ""):
        columns["model_path"] = clean_text(model)
    if reasoning := "\n\n".join(piece.reasoning for piece in pieces if piece.reasoning):
        # How many tokens it was nobody wrote down.
        columns |= {
            "reasoning": clean_text(reasoning),
            "reasoning_tokens": 0,
            "reasoning_s": sum(piece.reasoning_s for piece in pieces),
            "reasoning_was_cut": 0,
        }
    return columns
