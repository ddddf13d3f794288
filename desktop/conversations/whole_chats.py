"""Chats as a whole, for export and import: every column of every message, whichever migrations there are."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from msgspec import MsgspecError, json

from desktop.conversations.context_memory import KeptFit, chat_context
from desktop.conversations.database import reading, writing
from desktop.conversations.errors import primary_code
from desktop.conversations.records import ConversationId
from desktop.conversations.rows import Row, conversation_from, message_from
from desktop.conversations.store import ConversationStore

OWN_ORIGIN = "everwarm:"
"""Before the owner that a chat had where it was exported."""


class ChatUnusable(ValueError):
    """A chat to be added holds a value that no chat of this version can hold; `str()` says which."""


@dataclass(frozen=True, slots=True)
class TreeMessage:
    """Columns by name, without id, conversation_id and parent_id. parent: index of an earlier message of the chat.

    Messages that context_fit names are indices too.
    """

    parent: int | None
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WholeChat:
    """Columns by name, without those that only mean something in one database (`LOCAL_CHAT_COLUMNS`).

    head: index of the last message of the branch shown. origin: see m007; empty: none.
    """

    columns: Mapping[str, Any]
    messages: tuple[TreeMessage, ...]
    head: int | None
    origin: str = ""


LOCAL_CHAT_COLUMNS = frozenset(
    {"id", "owner", "deleted_at", "head_id", "origin", "origin_digest", "folder_id"}
)
LOCAL_MESSAGE_COLUMNS = frozenset({"id", "conversation_id", "parent_id"})


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """SQLite types ("TEXT", "INTEGER", "REAL", "BLOB") by column."""

    chat: Mapping[str, str]
    message: Mapping[str, str]


def chat_columns(store: ConversationStore) -> ChatColumns:
    with reading():
        return ChatColumns(
            _columns(store, "conversations", LOCAL_CHAT_COLUMNS),
            _columns(store, "messages", LOCAL_MESSAGE_COLUMNS),
        )


def read_whole_chat(store: ConversationStore, conversation_id: ConversationId) -> WholeChat:
    """Messages in the order they came about. Raises NoSuchRecord, DatabaseUnusable."""
    with reading():
        chat = store._row("conversations", conversation_id)
        sql = "SELECT * FROM messages WHERE conversation_id = :id ORDER BY id"
        rows = list(store._db.query(sql, {"id": conversation_id}))
    index = {row["id"]: number for number, row in enumerate(rows)}
    # A parent has always a smaller id than its children.
    messages = tuple(
        TreeMessage(
            None if row["parent_id"] is None else index[row["parent_id"]],
            {**_without(row, LOCAL_MESSAGE_COLUMNS), "context_fit": _fit_by_index(row["context_fit"], index)},
        )
        for row in rows
    )
    # A chat that came from another Everwarm keeps its name, so that it is known there when it comes back.
    origin = chat["origin"] or ""
    if not origin.startswith(OWN_ORIGIN):
        origin = OWN_ORIGIN + chat["owner"]
    head = None if chat["head_id"] is None else index[chat["head_id"]]
    return WholeChat(_without(chat, LOCAL_CHAT_COLUMNS), messages, head, origin)


def add_whole_chat(store: ConversationStore, chat: WholeChat) -> ConversationId | None:
    """All of it in one transaction; None: it is here already. A deleted chat is not here.

    Raises ChatUnusable, NotSaved.
    """
    digest = content_digest(chat.messages)
    origin = chat.origin or f"content:{digest}"
    with writing(store._db):
        if _is_here(store, origin, digest):
            return None
        try:
            return _add(store, chat, origin, digest)
        except (ValueError, TypeError, LookupError, OverflowError, struct.error, MsgspecError) as error:
            raise ChatUnusable(" ".join(str(error).split()) or type(error).__name__) from error
        except sqlite3.Error as error:
            if primary_code(error) in (None, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
                raise ChatUnusable(" ".join(str(error).split())) from error
            raise


def content_digest(messages: Sequence[TreeMessage]) -> str:
    """Of what was said and in which branches: neither times and figures nor the chat's title matter."""
    digest = hashlib.sha256()
    for message in messages:
        columns = message.columns
        for value in (message.parent, columns["role"], columns["content"], columns.get("reasoning")):
            text = "" if value is None else str(value)
            digest.update(b"%d:" % len(text))
            digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _columns(store: ConversationStore, table: str, local: frozenset[str]) -> dict[str, str]:
    return {
        row["name"]: row["type"]
        for row in store._db.query(f"PRAGMA table_info({table})")
        if row["name"] not in local
    }


def _without(row: Row, local: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in local}


def _is_here(store: ConversationStore, origin: str, digest: str) -> bool:
    sql = (
        "SELECT id, origin_digest FROM conversations "
        "WHERE deleted_at IS NULL AND (origin = :origin OR owner = :owner)"
    )
    owner = origin.removeprefix(OWN_ORIGIN) if origin.startswith(OWN_ORIGIN) else None
    found = list(store._db.query(sql, {"origin": origin, "owner": owner}))
    # What was in it when it came, or what is in it now.
    return any(
        row["origin_digest"] == digest or content_digest(read_whole_chat(store, row["id"]).messages) == digest
        for row in found
    )


def _add(store: ConversationStore, chat: WholeChat, origin: str, digest: str) -> ConversationId:
    local = {"owner": uuid4().hex, "origin": origin, "origin_digest": digest}
    chat_id = _insert(store, "conversations", {**chat.columns, **local})
    ids: list[int] = []
    for message in chat.messages:
        place = {
            "conversation_id": chat_id,
            "parent_id": None if message.parent is None else ids[message.parent],
        }
        fit = _fit_by_id(message.columns.get("context_fit"), ids)
        ids.append(_insert(store, "messages", {**message.columns, **place, "context_fit": fit}))
    head_id = None if chat.head is None else ids[chat.head]
    store._update("conversations", chat_id, {"head_id": head_id})
    # What cannot be read back must not come in: it would make the chat unreadable.
    conversation_from(store._row("conversations", chat_id))
    for row in store._db.query("SELECT * FROM messages WHERE conversation_id = :id", {"id": chat_id}):
        message_from(row)
    chat_context(store, ConversationId(chat_id))
    return ConversationId(chat_id)


def _fit_by_index(text: str | None, index: Mapping[int, int]) -> str | None:
    """A stored context fit with indices in place of ids; a message that was withdrawn since is in none."""
    if text is None:
        return None
    fit = json.decode(text, type=KeptFit)
    first = None if fit.first_seen is None else index.get(fit.first_seen)
    return _encoded(fit, first, [index[each] for each in fit.left_out if each in index])


def _fit_by_id(text: str | None, ids: Sequence[int]) -> str | None:
    """The other way round. Raises LookupError, MsgspecError."""
    if text is None:
        return None
    fit = json.decode(text, type=KeptFit)
    named = [*fit.left_out, *(() if fit.first_seen is None else (fit.first_seen,))]
    if any(not 0 <= each < len(ids) for each in named):
        raise LookupError("context_fit names a message that is not before it")
    first = None if fit.first_seen is None else ids[fit.first_seen]
    return _encoded(fit, first, [ids[each] for each in fit.left_out])


def _encoded(fit: KeptFit, first_seen: int | None, left_out: Sequence[int]) -> str:
    return json.encode({**asdict(fit), "first_seen": first_seen, "left_out": left_out}).decode()


def _insert(store: ConversationStore, table: str, row: Mapping[str, Any]) -> int:
    names = ", ".join(f'"{name}"' for name in row)
    places = ", ".join("?" * len(row))
    cursor = store._db.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(row.values()))
    assert cursor.lastrowid is not None
    return cursor.lastrowid
