"""Everwarm's own JSON, as docs/exchange.md describes it: nothing of a chat is lost on the way out and in again.

Members are the columns of the chat and its messages, under the same names. So what a later version adds to a chat is
in its exports without a change here, and what this version does not know yet is reported when it comes in.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any, get_args

from desktop.conversations.records import MessageStatus
from desktop.conversations.rows import (
    clean_text,
    decode_token_ids,
    encode_token_ids,
    from_us,
    now_us,
)
from desktop.conversations.whole_chats import OWN_ORIGIN, ChatColumns, TreeMessage, WholeChat
from desktop.exchange.errors import NotReadable
from desktop.exchange.incoming import IncomingChat, Notes
from inference import Role

KIND = "Everwarm"
MARK = "everwarm_chat"
"""The first member of each chat; its value is the version of the format."""
VERSION = 1
FILE_MARK = "everwarm-chats"

_JSON_COLUMNS: dict[str, type] = {
    "sampling": dict,
    "template_options": dict,
    "template_mends": list,
    "context_fit": dict,
}
"""Text columns that hold JSON themselves."""
_CHAT_MEMBERS = frozenset({MARK, "id", "head", "messages"})
_MESSAGE_MEMBERS = frozenset({"number", "parent"})
_TYPES: dict[str, type | UnionType] = {"INTEGER": int, "REAL": int | float, "TEXT": str}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTERRUPTED = "This reply was still being written when the chat was exported."


def write_chat(chat: WholeChat) -> dict[str, Any]:
    """Members without a value are left out."""
    return {
        MARK: VERSION,
        "id": chat.origin.removeprefix(OWN_ORIGIN),
        **_members(chat.columns),
        **({} if chat.head is None else {"head": chat.head + 1}),
        "messages": [
            {
                "number": number,
                **({} if message.parent is None else {"parent": message.parent + 1}),
                **_message_members(message),
            }
            for number, message in enumerate(chat.messages, 1)
        ],
    }


def is_chat(element: Mapping[str, Any]) -> bool:
    return MARK in element


def read_chat(element: Mapping[str, Any], columns: ChatColumns) -> IncomingChat:
    """columns: of the database it is for. Raises NotReadable."""
    version = element[MARK]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise NotReadable("its format version is no number")
    if version > VERSION:
        raise NotReadable("it was written by a newer Everwarm; import it with that version")
    notes: Notes = Counter()
    chat_id = element.get("id")
    messages = element.get("messages")
    if not isinstance(messages, list):
        raise NotReadable("it has no list of messages")
    reader = _Reader(notes)
    chat_columns = reader.columns(element, columns.chat, _CHAT_MEMBERS)
    now = now_us()
    chat_columns.setdefault("title", "")
    chat_columns.setdefault("created_at", now)
    chat_columns.setdefault("updated_at", chat_columns["created_at"])
    place: dict[int, int] = {}
    tree = [_message(message, place, reader, columns, chat_columns["created_at"]) for message in messages]
    head = element.get("head")
    if head is not None and (not isinstance(head, int) or head not in place):
        raise NotReadable(f"its head, {str(head)[:20]!r}, is none of its messages")
    whole = WholeChat(
        chat_columns,
        tuple(tree),
        None if head is None else place[head],
        clean_text(OWN_ORIGIN + chat_id) if isinstance(chat_id, str) and chat_id else "",
    )
    return IncomingChat(KIND, str(chat_columns["title"]), whole, notes=notes)


def _message(
    element: object, place: dict[int, int], reader: _Reader, columns: ChatColumns, chat_created_us: int
) -> TreeMessage:
    if not isinstance(element, dict):
        raise NotReadable("one of its messages is no object")
    number, parent = element.get("number"), element.get("parent")
    if not isinstance(number, int) or number in place:
        raise NotReadable(f"message number {str(number)[:20]!r} is missing or there twice")
    if parent is not None and (not isinstance(parent, int) or parent not in place):
        raise NotReadable(f"the parent of message {number} is none of the messages before it")
    if isinstance(fit := element.get("context_fit"), dict):
        try:
            element = {**element, "context_fit": _renamed(fit, place.__getitem__)}
        except (KeyError, TypeError) as error:
            raise NotReadable(f"the context_fit of message {number} names none of those before it") from error
    row = reader.columns(element, columns.message, _MESSAGE_MEMBERS)
    if row.get("role") not in get_args(Role) or not isinstance(row.get("content"), str):
        raise NotReadable(f"message {number} has no role or no content")
    row.setdefault("status", MessageStatus.COMPLETE.value)
    row.setdefault("created_at", chat_created_us)
    row.setdefault("updated_at", row["created_at"])
    if row["status"] == MessageStatus.STREAMING:
        row |= {"status": MessageStatus.INTERRUPTED.value, "error": _INTERRUPTED}
    place[number] = len(place)
    return TreeMessage(None if parent is None else place[parent], row)


def _members(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _member(name, value) for name, value in columns.items() if value is not None}


def _message_members(message: TreeMessage) -> dict[str, Any]:
    members = _members(message.columns)
    if fit := members.get("context_fit"):
        members["context_fit"] = _renamed(fit, lambda index: index + 1)
    return members


def _renamed(fit: Mapping[str, Any], name: Callable[[int], int]) -> dict[str, Any]:
    """A context fit that calls its messages otherwise. Raises KeyError, TypeError."""
    first = fit.get("first_seen")
    return {
        **fit,
        "first_seen": None if first is None else name(first),
        "left_out": [name(each) for each in fit.get("left_out") or ()],
    }


def _member(name: str, value: Any) -> Any:
    if _is_time(name):
        return _time_text(value)
    if _is_flag(name):
        return bool(value)
    if name == "token_ids":
        return list(decode_token_ids(value) or ())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if name in _JSON_COLUMNS:
        return json.loads(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _is_time(name: str) -> bool:
    return name.endswith("_at")


def _is_flag(name: str) -> bool:
    return name.startswith("is_") or "_was_" in name


def _time_text(microseconds: int) -> str:
    return from_us(microseconds).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class _Reader:
    notes: Notes

    def columns(
        self, members: Mapping[str, Any], known: Mapping[str, str], own: frozenset[str]
    ) -> dict[str, Any]:
        """What the database takes of these members. Raises NotReadable."""
        row: dict[str, Any] = {}
        for name, value in members.items():
            if value is None or name in own:
                continue
            if name in known:
                row[name] = _column(name, value, known[name])
            else:
                self.notes[f"value named {clean_text(name)[:40]!r}, which this version does not know"] += 1
        return row


def _column(name: str, value: Any, sql_type: str) -> Any:
    try:
        if _is_time(name):
            moment = datetime.fromisoformat(value)
            return (moment - _EPOCH) // timedelta(microseconds=1)
        if name == "token_ids":
            return encode_token_ids(value)
        if sql_type == "BLOB":
            return base64.b64decode(value, validate=True)
        if name in _JSON_COLUMNS:
            if isinstance(value, _JSON_COLUMNS[name]) and _holds_plain_values(name, value):
                return json.dumps(value)
        elif _is_flag(name) and isinstance(value, bool):
            return int(value)
        elif isinstance(value, _TYPES[sql_type]) and not isinstance(value, bool):
            return clean_text(value) if isinstance(value, str) else value
    except (ValueError, TypeError, OverflowError, struct.error, RecursionError) as error:
        raise NotReadable(f"its {name} cannot be used ({' '.join(str(error).split())[:100]})") from error
    raise NotReadable(f"its {name} is of another kind than it should be")


def _holds_plain_values(name: str, value: Any) -> bool:
    """What these columns hold is shown and handed on as it is; `sampling` checks itself."""
    if name == "template_mends":
        return all(isinstance(mend, str) for mend in value)
    return name != "template_options" or all(isinstance(v, bool | int | float | str) for v in value.values())
