"""Messages that stand in a file one after another: of OpenAI's kind, Jan's messages.jsonl, ShareGPT's from and value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from desktop.exchange.content_parts import PartsText, fenced
from desktop.exchange.foreign_values import Object, as_id, as_list, as_object, as_text, as_time_us, as_title
from desktop.exchange.incoming import IncomingChat, Notes, Piece, SourceNode, incoming_chat, split_reasoning
from inference import Role

OPENAI = "OpenAI messages"
JAN = "Jan"
_ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "system": "system",
    "developer": "system",
}


def is_message(element: Object) -> bool:
    if isinstance(element.get("from"), str) and isinstance(element.get("value"), str):
        return True
    has_text = isinstance(element.get("content"), str | list) or "tool_calls" in element
    return isinstance(element.get("role"), str) and has_text


def is_jan_message(element: Object) -> bool:
    return element.get("object") == "thread.message"


def is_chat(element: Object) -> bool:
    messages = element.get("messages")
    return isinstance(messages, list) and any(is_message(as_object(message)) for message in messages)


def read_chat(element: Object) -> IncomingChat:
    """`{"messages": […]}`; title, id and times where they are there. Raises NotReadable."""
    return read_messages(
        [as_object(message) for message in as_list(element["messages"])],
        OPENAI,
        source_id=as_id(element.get("id")),
        about=element,
    )


def read_jan_thread(messages: Sequence[Object], thread: Object) -> IncomingChat:
    """thread: what thread.json says; may be empty. Raises NotReadable."""
    assistants = as_list(thread.get("assistants"))
    assistant = as_object(assistants[0]) if assistants else {}
    thread_id = as_id(thread.get("id")) or as_id(messages[0].get("thread_id") if messages else "")
    return read_messages(
        messages,
        JAN,
        source_id=thread_id,
        about={**as_object(thread.get("metadata")), **thread},
        model=as_title(as_object(assistant.get("model")).get("id")),
        system_prompt=as_text(assistant.get("instructions")),
    )


def read_messages(
    messages: Sequence[Object],
    kind: str,
    *,
    source_id: str = "",
    about: Object | None = None,
    model: str = "",
    system_prompt: str = "",
) -> IncomingChat:
    """about: an object that may have the chat's title and times. Raises NotReadable."""
    notes: Notes = Counter()
    about = about or {}
    nodes = [
        SourceNode(str(number), str(number - 1) if number else None, _piece(message, notes, model))
        for number, message in enumerate(messages)
    ]
    return incoming_chat(
        kind,
        source_id=source_id,
        title=as_title(about.get("title")) or as_title(about.get("name")),
        nodes=nodes,
        head_id=nodes[-1].id if nodes else None,
        notes=notes,
        created_us=as_time_us(about.get("created_at")) or as_time_us(about.get("created")),
        updated_us=as_time_us(about.get("updated_at")) or as_time_us(about.get("updated")),
        system_prompt=system_prompt,
    )


def _piece(message: Object, notes: Notes, model: str) -> Piece | None:
    name = as_text(message.get("role")) or as_text(message.get("from"))
    role = _ROLES.get(name.lower(), "assistant")
    parts = PartsText(notes).add_all(message.get("content", message.get("value")))
    parts.add_tool_calls(message.get("tool_calls"))
    for attachment in as_list(message.get("attachments")):
        parts.leave_out("attachment", as_object(attachment).get("name"))
    text = parts.content
    for member in ("reasoning_content", "reasoning", "thinking"):
        if thought := as_text(message.get(member)):
            parts.reasoning.append(thought)
            break
    if name in ("tool", "function"):
        text = f"*{as_title(message.get('name')) or 'tool'}:*\n\n{fenced(text)}" if text else ""
    elif role == "assistant":
        text, thought = split_reasoning(text)
        parts.reasoning.append(thought)
    reasoning = "\n\n".join(thought for thought in parts.reasoning if thought.strip())
    if not text.strip() and not reasoning:
        return None
    times = (message.get(member) for member in ("created_at", "created", "timestamp"))
    created = next((time for time in map(as_time_us, times) if time is not None), None)
    used = as_title(message.get("model")) or model
    return Piece(role, text, reasoning, 0.0, created, used if role == "assistant" else "")
