"""LM Studio's *.conversation.json: a list of turns, each with `versions` of which one is selected."""

from __future__ import annotations

from collections import Counter

from desktop.exchange.content_parts import PartsText
from desktop.exchange.foreign_values import (
    Object,
    as_list,
    as_object,
    as_seconds,
    as_text,
    as_time_us,
    as_title,
)
from desktop.exchange.incoming import IncomingChat, Notes, Piece, SourceNode, incoming_chat, split_reasoning
from inference import Role

KIND = "LM Studio"
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def is_chat(element: Object) -> bool:
    messages = element.get("messages")
    if not isinstance(messages, list):
        return False
    if not messages:
        return "usePerChatPredictionConfig" in element
    return any(isinstance(as_object(message).get("versions"), list) for message in messages)


def read_chat(element: Object) -> IncomingChat:
    """What follows a turn follows its selected version; the others are alternatives to it. Raises NotReadable."""
    notes: Notes = Counter()
    nodes: list[SourceNode] = []
    parent: str | None = None
    for turn, message in enumerate(as_list(element.get("messages"))):
        versions = as_list(as_object(message).get("versions"))
        selected = as_object(message).get("currentlySelected")
        if not isinstance(selected, int) or not 0 <= selected < len(versions):
            selected = len(versions) - 1
        above = parent
        for number, version in enumerate(versions):
            node_id = f"{turn}.{number}"
            nodes.append(SourceNode(node_id, above, _piece(as_object(version), notes)))
            if number == selected:
                parent = node_id
    created = as_time_us(element.get("createdAt"))
    last = [as_time_us(element.get(name)) for name in ("userLastMessagedAt", "assistantLastMessagedAt")]
    for _ in as_list(element.get("clientInputFiles")):
        notes["file in the draft"] += 1
    return incoming_chat(
        KIND,
        # It has no id; the time it was made at is one to the millisecond.
        source_id="" if created is None else str(created),
        title=as_title(element.get("name")),
        nodes=nodes,
        head_id=parent,
        notes=notes,
        created_us=created,
        updated_us=max((time for time in last if time is not None), default=None),
        system_prompt=as_text(element.get("systemPrompt")) or _configured_system_prompt(element),
        columns={"draft": as_text(element.get("clientInput"))},
    )


def _configured_system_prompt(element: Object) -> str:
    for field in as_list(as_object(element.get("perChatPredictionConfig")).get("fields")):
        values = as_object(field)
        if values.get("key") == "llm.prediction.systemPrompt":
            return as_text(values.get("value"))
    return ""


def _piece(version: Object, notes: Notes) -> Piece | None:
    role = _ROLES.get(as_text(version.get("role")), "assistant")
    parts = PartsText(notes)
    seconds = 0.0
    model = as_title(as_object(version.get("senderInfo")).get("senderName"))
    time: int | None = None
    if isinstance(version.get("steps"), list):
        for step in as_list(version.get("steps")):
            seconds += _add_step(parts, as_object(step))
            identifier = as_text(as_object(step).get("stepIdentifier"))
            time = time or as_time_us(identifier.partition("-")[0])
    else:
        parts.add_all(version.get("content"))
    text, thought = split_reasoning(parts.content) if role == "assistant" else (parts.content, "")
    reasoning = "\n\n".join(text for text in (*parts.reasoning, thought) if text.strip())
    if not text.strip() and not reasoning:
        return None
    return Piece(role, text, reasoning, seconds, time, model if role == "assistant" else "")


def _add_step(parts: PartsText, step: Object) -> float:
    """How long was thought in it."""
    kind = as_text(step.get("type"))
    if kind == "debugInfoBlock":
        return 0.0
    if kind != "contentBlock":
        parts.leave_out("tool call" if "tool" in kind.lower() else "part of unknown kind", kind)
        return 0.0
    style = as_object(step.get("style"))
    if style.get("type") != "thinking":
        parts.add_all(step.get("content"))
        return 0.0
    thinking = PartsText(parts.notes).add_all(step.get("content"))
    parts.reasoning.append("".join(thinking.texts).strip())
    # "Thought for 5.33 seconds"
    words = as_title(style.get("title")).split()
    return max((as_seconds(word) for word in words), default=0.0)
