"""SillyTavern's .jsonl: a first line about the chat, then a message a line, with `swipes` as its alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from desktop.exchange.content_parts import PartsText
from desktop.exchange.foreign_values import Object, as_list, as_object, as_text, as_time_us, as_title
from desktop.exchange.incoming import IncomingChat, Notes, Piece, SourceNode, incoming_chat, split_reasoning

KIND = "SillyTavern"


def is_header(element: Object) -> bool:
    return "mes" not in element and (
        isinstance(element.get("chat_metadata"), dict)
        or ("user_name" in element and "character_name" in element)
    )


def is_message(element: Object) -> bool:
    return isinstance(element.get("mes"), str) and ("is_user" in element or "name" in element)


def read_chat(header: Object, messages: Sequence[Object]) -> IncomingChat:
    """Raises NotReadable."""
    notes: Notes = Counter()
    spoken = [message for message in messages if message.get("is_system") is not True]
    notes["hidden line"] += len(messages) - len(spoken)
    names = {as_title(message.get("name")) for message in spoken if not message.get("is_user")}
    nodes: list[SourceNode] = []
    parent: str | None = None
    for number, message in enumerate(spoken):
        parent = _add_swipes(nodes, parent, number, message, notes, is_group=len(names) > 1)
    created = as_time_us(header.get("create_date"))
    character = as_title(header.get("character_name")) or next(iter(sorted(names)), "")
    if as_text(as_object(header.get("chat_metadata")).get("note_prompt")):
        notes["author's note"] += 1
    integrity = as_text(as_object(header.get("chat_metadata")).get("integrity"))
    return incoming_chat(
        KIND,
        source_id=integrity or (f"{character} {created}" if created and character else ""),
        title=character if character.lower() != "unused" else "",
        nodes=nodes,
        head_id=parent,
        notes=+notes,
        created_us=created,
    )


def _add_swipes(
    nodes: list[SourceNode],
    parent: str | None,
    number: int,
    message: Object,
    notes: Notes,
    *,
    is_group: bool,
) -> str:
    swipes = [swipe for swipe in as_list(message.get("swipes")) if isinstance(swipe, str)]
    infos = as_list(message.get("swipe_info"))
    chosen = message.get("swipe_id")
    if len(swipes) < 2 or not isinstance(chosen, int) or not 0 <= chosen < len(swipes):
        swipes, infos, chosen = [as_text(message.get("mes"))], [message], 0
    selected = f"{number}.{chosen}"
    for at, swipe in enumerate(swipes):
        info = message if at == chosen else as_object(infos[at] if at < len(infos) else None)
        # The message itself is what was last edited; its swipe may be older.
        text = as_text(message.get("mes")) if at == chosen else as_text(swipe)
        piece = _piece(message, info, text, notes, is_group=is_group)
        nodes.append(SourceNode(f"{number}.{at}", parent, piece))
    return selected


def _piece(message: Object, info: Object, text: str, notes: Notes, *, is_group: bool) -> Piece | None:
    extra = as_object(info.get("extra"))
    parts = PartsText(notes, [text])
    if extra.get("image") or as_list(extra.get("image_swipes")):
        parts.leave_out("image")
    if file := extra.get("file") or as_list(extra.get("files")):
        parts.leave_out("file", as_object(file).get("name"))
    created = as_time_us(info.get("send_date"))
    if message.get("is_user"):
        return Piece("user", parts.content, created_us=created) if parts.content else None
    answer, thought = split_reasoning(parts.content)
    reasoning = as_text(extra.get("reasoning")) or thought
    if not answer.strip() and not reasoning:
        return None
    name = as_title(message.get("name"))
    if is_group and name:
        answer = f"**{name}:** {answer}"
    duration = extra.get("reasoning_duration")
    seconds = duration / 1000 if isinstance(duration, int | float) and 0 < duration < 1e9 else 0.0
    return Piece("assistant", answer, reasoning, seconds, created, as_title(extra.get("model")))
