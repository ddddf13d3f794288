"""Open WebUI's export: a list of chats, whose tree is `chat.history.messages`; old ones have a list `chat.messages`."""

from __future__ import annotations

import html
import re
from collections import Counter

from desktop.exchange.content_parts import PartsText
from desktop.exchange.foreign_values import (
    Object,
    as_id,
    as_list,
    as_object,
    as_seconds,
    as_text,
    as_time_us,
    as_title,
)
from desktop.exchange.incoming import IncomingChat, Notes, Piece, SourceNode, incoming_chat, split_reasoning
from inference import Role

KIND = "Open WebUI"
# What it folds away inside the text: <details type="reasoning" done="true" duration="5">…</details>
_DETAILS = re.compile(r'<details\b(?P<attributes>[^<>]{0,2000}?\btype="(?P<type>[a-z_]+)"[^<>]{0,2000})>')
_DETAILS_END = "</details>"
_SUMMARY = re.compile(r"\s*<summary>[^<]{0,500}</summary>\s?")
_DURATION = re.compile(r'\bduration="(\d{1,9}(?:\.\d{1,9})?)"')
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def is_chat(element: Object) -> bool:
    chat = element.get("chat", element)
    if not isinstance(chat, dict):
        return False
    return isinstance(as_object(chat.get("history")).get("messages"), dict) or (
        chat is not element and isinstance(chat.get("messages"), list)
    )


def read_chat(element: Object) -> IncomingChat:
    """Raises NotReadable."""
    notes: Notes = Counter()
    chat = as_object(element.get("chat", element))
    history = as_object(chat.get("history"))
    mapping = as_object(history.get("messages"))
    if mapping:
        nodes = [_node(key, as_object(message), notes) for key, message in mapping.items()]
        head_id = as_id(history.get("currentId"))
    else:
        nodes, head_id = [], ""
        for number, message in enumerate(as_list(chat.get("messages"))):
            nodes.append(SourceNode(str(number), head_id or None, _piece(as_object(message), notes)))
            head_id = str(number)
    for file in as_list(chat.get("files")):
        notes["file of the chat"] += bool(as_object(file))
    params = as_object(chat.get("params"))
    return incoming_chat(
        KIND,
        source_id=as_id(element.get("id")) or as_id(chat.get("id")),
        title=as_title(element.get("title")) or as_title(chat.get("title")),
        nodes=nodes,
        head_id=head_id,
        notes=+notes,
        created_us=as_time_us(element.get("created_at")) or as_time_us(chat.get("timestamp")),
        updated_us=as_time_us(element.get("updated_at")),
        system_prompt=as_text(params.get("system")) or as_text(chat.get("system")),
    )


def _node(key: str, message: Object, notes: Notes) -> SourceNode:
    parent = message.get("parentId")
    return SourceNode(key, parent if isinstance(parent, str) else None, _piece(message, notes))


def _piece(message: Object, notes: Notes) -> Piece | None:
    role = _ROLES.get(as_text(message.get("role")), "assistant")
    parts = PartsText(notes).add_all(message.get("content"))
    text, seconds = parts.content, 0.0
    if role == "assistant":
        text, seconds = _unfold(text, parts)
        text, thought = split_reasoning(text)
        parts.reasoning.append(thought)
    parts.texts = [text]
    for file in as_list(message.get("files")):
        values = as_object(file)
        kind = as_text(values.get("type"))
        parts.leave_out("image" if kind == "image" else "file", "" if kind == "image" else values.get("name"))
    if sources := as_list(message.get("sources")):
        notes["citation source"] += len(sources)
    reasoning = "\n\n".join(thought for thought in parts.reasoning if thought)
    error = message.get("error")
    reason = as_text(as_object(error).get("content")) or as_text(error) or ("it failed" if error else "")
    if not parts.content and not reasoning and not reason:
        return None
    return Piece(
        role,
        parts.content,
        reasoning,
        seconds,
        as_time_us(message.get("timestamp")),
        as_title(message.get("modelName")) or as_title(message.get("model")) if role == "assistant" else "",
        as_title(reason),
    )


def _unfold(text: str, parts: PartsText) -> tuple[str, float]:
    """The text without what is folded away in it, and how long was thought."""
    seconds = 0.0
    rest: list[str] = []
    at = 0
    while opening := _DETAILS.search(text, at):
        end = text.find(_DETAILS_END, opening.end())
        if end < 0:
            break
        rest.append(text[at : opening.start()])
        at = end + len(_DETAILS_END)
        if opening["type"] == "reasoning":
            if duration := _DURATION.search(opening["attributes"]):
                seconds += as_seconds(duration[1])
            inside = html.unescape(_SUMMARY.sub("", text[opening.end() : end], count=1)).strip()
            parts.reasoning.append(
                "\n".join(line.removeprefix(">").removeprefix(" ") for line in inside.splitlines())
            )
        else:
            what = "tool call" if opening["type"] == "tool_calls" else "part of unknown kind"
            rest.append(f"[{what}: not imported]\n")
            parts.notes[what] += 1
    rest.append(text[at:])
    return "".join(rest).strip() if at else text, seconds
