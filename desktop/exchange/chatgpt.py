"""ChatGPT's conversations.json: a list of chats, each a `mapping` of nodes linked by `parent`.

Only parent links are followed: `children` is missing in some exports. `message` is null in the root and may be so
anywhere; `create_time` may be null; `metadata` may be missing.
"""

from __future__ import annotations

import re
from collections import Counter

from desktop.exchange.content_parts import PartsText, fenced, first_text, quoted
from desktop.exchange.errors import NotReadable
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
from desktop.exchange.incoming import IncomingChat, Notes, Piece, SourceNode, incoming_chat
from inference import Role

KIND = "ChatGPT"
# Marks of citations between private-use characters, e.g. \ue200cite\ue202turn0search1\ue201
_CITATION = re.compile(" ?\ue200[^\ue200\ue201]{0,2000}\ue201")
_THOUGHT_FOR = re.compile(r"(?:(\d+)m)?\s*(\d+)s|(\d+) seconds?")


def is_chat(element: Object) -> bool:
    return isinstance(element.get("mapping"), dict)


def read_chat(element: Object) -> IncomingChat:
    """Raises NotReadable."""
    notes: Notes = Counter()
    mapping = as_object(element["mapping"])
    if not mapping:
        raise NotReadable("it has no messages")
    nodes = [_node(key, as_object(node), notes) for key, node in mapping.items()]
    return incoming_chat(
        KIND,
        source_id=as_id(element.get("conversation_id")) or as_id(element.get("id")),
        title=as_title(element.get("title")),
        nodes=nodes,
        head_id=as_id(element.get("current_node")),
        notes=notes,
        created_us=as_time_us(element.get("create_time")),
        updated_us=as_time_us(element.get("update_time")),
    )


def _node(key: str, node: Object, notes: Notes) -> SourceNode:
    parent = node.get("parent")
    message = node.get("message")
    piece = _piece(message, notes) if isinstance(message, dict) else None
    return SourceNode(key, parent if isinstance(parent, str) else None, piece)


def _piece(message: Object, notes: Notes) -> Piece | None:
    metadata = as_object(message.get("metadata"))
    author = as_object(message.get("author"))
    author_role = as_text(author.get("role"))
    content = as_object(message.get("content"))
    kind = as_text(content.get("content_type"))
    if kind in ("user_editable_context", "model_editable_context"):
        if kind == "user_editable_context":
            notes["custom instruction of the account"] += 1
        return None
    if metadata.get("is_visually_hidden_from_conversation") is True:
        return None
    parts = PartsText(notes)
    seconds = 0.0
    if kind == "thoughts":
        parts.reasoning.extend(map(_thought, as_list(content.get("thoughts"))))
    elif kind == "reasoning_recap":
        seconds = _recap_seconds(metadata, as_text(content.get("content")))
    else:
        _add_content(parts, kind, content, message)
    for attachment in as_list(metadata.get("attachments")):
        values = as_object(attachment)
        if not as_text(values.get("mime_type")).startswith("image/"):
            parts.leave_out("attachment", values.get("name"))
    text, citations = _CITATION.subn("", parts.content)
    if citations:
        notes["citation mark"] += citations
    reasoning = "\n\n".join(thought for thought in parts.reasoning if thought)
    if not text.strip() and not reasoning and not seconds:
        return None
    if author_role == "tool":
        text = _tool_text(as_title(author.get("name")), text)
    return Piece(
        _ROLES.get(author_role, "assistant"),
        text,
        reasoning,
        seconds,
        as_time_us(message.get("create_time")),
        as_title(metadata.get("model_slug")),
    )


_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system"}


def _add_content(parts: PartsText, kind: str, content: Object, message: Object) -> None:
    match kind:
        case "text" | "multimodal_text" | "":
            for part in as_list(content.get("parts")):
                _add_part(parts, part)
            if not as_list(content.get("parts")):
                parts.texts.append(as_text(content.get("text")))
        case "code":
            recipient = as_text(message.get("recipient"))
            language = as_text(content.get("language"))
            if language in ("", "unknown"):
                language = "python" if recipient.startswith("python") else ""
            parts.texts.append(fenced(as_text(content.get("text")), language))
        case "execution_output":
            parts.texts.append(fenced(as_text(content.get("text"))))
        case "tether_quote":
            title = first_text((content.get("title"), content.get("domain"), content.get("url")))
            parts.texts.append(f"{title}\n\n{quoted(as_text(content.get('text')))}".strip())
        case "tether_browsing_display" | "sonic_webpage":
            parts.leave_out("web page", content.get("title"))
        case "system_error":
            parts.texts.append(f"[{as_title(content.get('name')) or 'error'}] {as_text(content.get('text'))}")
        case _:
            text = as_text(content.get("text")) or as_text(content.get("result"))
            if text:
                parts.texts.append(text)
            else:
                parts.leave_out("part of unknown kind", kind)


def _add_part(parts: PartsText, part: object) -> None:
    if isinstance(part, str):
        parts.texts.append(as_text(part))
        return
    values = as_object(part)
    kind = as_text(values.get("content_type"))
    if kind == "audio_transcription":
        parts.texts.append(as_text(values.get("text")))
        return
    for word in ("image", "audio", "video"):
        if word in kind:
            parts.leave_out(word)
            return
    if text := as_text(values.get("text")):
        parts.texts.append(text)
    elif part is not None:
        parts.leave_out("part of unknown kind", kind)


def _thought(thought: object) -> str:
    values = as_object(thought)
    summary, content = as_text(values.get("summary")).strip(), as_text(values.get("content")).strip()
    return f"**{summary}**\n\n{content}" if summary and content else summary or content


def _recap_seconds(metadata: Object, text: str) -> float:
    if seconds := as_seconds(metadata.get("finished_duration_sec")):
        return seconds
    found = _THOUGHT_FOR.search(text[:200])
    if not found:
        return 0.0
    return (
        as_seconds(int(found[3][:6])) if found[3] else 60.0 * int((found[1] or "0")[:6]) + int(found[2][:6])
    )


def _tool_text(name: str, text: str) -> str:
    return f"*{name or 'tool'}:*\n\n{text}" if text else ""
