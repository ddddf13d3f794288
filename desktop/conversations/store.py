"""Conversations and their message trees, each change in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from uuid import uuid4

from sqlite_utils import Database

from desktop.conversations.chat_title import title_from
from desktop.conversations.database import connect, prepare, reading, writing
from desktop.conversations.errors import NoSuchRecord
from desktop.conversations.records import (
    Conversation,
    ConversationId,
    MessageId,
    MessageStatus,
    StoredMessage,
)
from desktop.conversations.rows import (
    clean_optional,
    clean_text,
    conversation_from,
    encode_counts,
    encode_miss,
    encode_reasoning,
    encode_sampling,
    encode_timings,
    encode_token_ids,
    message_from,
    now_us,
    to_us,
)
from inference import FinishReason, Miss, PromptCounts, Reasoning, RequestTimings, SamplingParams, TokenId

LOCK_TIMEOUT_S = 5.0
_APP_ENDED = "Everwarm ended before this reply was finished. What was written is kept."

_BRANCH = """
    WITH RECURSIVE ancestors (id, parent_id, depth) AS (
        SELECT messages.id, messages.parent_id, 0
        FROM conversations JOIN messages ON messages.id = conversations.head_id
        WHERE conversations.id = :conversation_id
        UNION ALL
        SELECT messages.id, messages.parent_id, depth + 1
        FROM ancestors JOIN messages ON messages.id = ancestors.parent_id
    )
    SELECT messages.* FROM ancestors JOIN messages USING (id) ORDER BY depth DESC
"""


class ConversationStore:
    """Used on the thread that made it. Writes raise NotSaved, reads DatabaseUnusable; unknown ids NoSuchRecord."""

    def __init__(self, db: Database) -> None:
        """Takes the connection over and brings its schema up to date. Raises DatabaseUnusable."""
        prepare(db)
        self._db = db
        self._last_us = 0

    @classmethod
    def open(cls, path: Path, lock_timeout_s: float = LOCK_TIMEOUT_S) -> ConversationStore:
        """Raises DatabaseUnusable. lock_timeout_s: how long a write waits for another process's lock."""
        db = connect(path, lock_timeout_s)
        try:
            return cls(db)
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def create_conversation(
        self, title: str = "", model_path: str | None = None, *, is_private: bool = False
    ) -> Conversation:
        now = self._now_us()
        with writing(self._db):
            row_id = self._insert(
                "conversations",
                {
                    "title": clean_text(title),
                    "created_at": now,
                    "updated_at": now,
                    "model_path": clean_optional(model_path),
                    "owner": uuid4().hex,
                    "is_private": is_private,
                },
            )
            return self._conversation(ConversationId(row_id))

    def conversations(self) -> list[Conversation]:
        """Without the deleted ones; the one that was active last comes first."""
        sql = "SELECT * FROM conversations WHERE deleted_at IS NULL ORDER BY updated_at DESC, id DESC"
        with reading():
            return [conversation_from(row) for row in self._db.query(sql)]

    def conversation(self, conversation_id: ConversationId) -> Conversation:
        """A deleted one too, until it is purged."""
        with reading():
            return self._conversation(conversation_id)

    def rename(self, conversation_id: ConversationId, title: str) -> None:
        self._change_conversation(conversation_id, {"title": clean_text(title), "titled_by": "user"})

    def set_model(self, conversation_id: ConversationId, model_path: str | None) -> None:
        self._change_conversation(conversation_id, {"model_path": clean_optional(model_path)})

    def set_pinned(self, conversation_id: ConversationId, is_pinned: bool) -> None:
        self._change_conversation(conversation_id, {"is_pinned": is_pinned})

    def pinned_owners(self) -> list[str]:
        """Of deleted chats too, which may come back."""
        with reading():
            return [row["owner"] for row in self._db.query("SELECT owner FROM conversations WHERE is_pinned")]

    def set_draft(self, conversation_id: ConversationId, draft: str) -> None:
        self._change_conversation(conversation_id, {"draft": clean_text(draft)})

    def set_head(self, conversation_id: ConversationId, head_id: MessageId | None) -> None:
        """Show the branch that ends in this message; None: an empty one."""
        with writing(self._db):
            if head_id is not None:
                self._message_of(conversation_id, head_id)
            self._update("conversations", conversation_id, {"head_id": head_id})

    def delete(self, conversation_id: ConversationId) -> None:
        """Take it out of conversations(). Nothing is lost before purge_deleted."""
        self._change_conversation(conversation_id, {"deleted_at": now_us()})

    def undelete(self, conversation_id: ConversationId) -> None:
        self._change_conversation(conversation_id, {"deleted_at": None})

    def purge_deleted(self, before: datetime) -> int:
        """Destroy what was deleted before that moment, with all messages; how many conversations that were.

        Their owners are remembered in owners_to_forget().
        """
        moment = {"before": to_us(before)}
        with writing(self._db):
            self._db.execute(
                "INSERT INTO owners_to_forget SELECT owner FROM conversations WHERE deleted_at < :before",
                moment,
            )
            purged = self._db.execute("DELETE FROM conversations WHERE deleted_at < :before", moment).rowcount
        if purged:
            # The text may still be in the write-ahead log. If a reader is in the way, the next checkpoint does it.
            with contextlib.suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return purged

    def owners_to_forget(self) -> list[str]:
        """Of purged chats, whose KV state the engine may still keep."""
        with reading():
            return [row["owner"] for row in self._db.query("SELECT owner FROM owners_to_forget")]

    def owners_forgotten(self, owners: Sequence[str]) -> None:
        """The engine keeps nothing of theirs any more."""
        with writing(self._db):
            for owner in owners:
                self._db.execute("DELETE FROM owners_to_forget WHERE owner = :owner", {"owner": owner})

    def add_user_message(
        self, conversation_id: ConversationId, content: str, parent_id: MessageId | None
    ) -> StoredMessage:
        """On disk when this returns: the message, as head; the draft is cleared; a missing title is made of it."""
        content = clean_text(content)
        with writing(self._db):
            conversation = self._conversation(conversation_id)
            message_id = self._add_message(
                conversation_id,
                parent_id,
                {"role": "user", "content": content, "status": MessageStatus.COMPLETE},
                {"draft": "", "title": conversation.title or title_from(content)},
            )
            return self._message(message_id)

    def begin_reply(
        self,
        conversation_id: ConversationId,
        parent_id: MessageId,
        model_path: str,
        sampling: SamplingParams,
    ) -> StoredMessage:
        """An empty reply with status streaming, as head."""
        with writing(self._db):
            message_id = self._add_message(
                conversation_id,
                parent_id,
                {
                    "role": "assistant",
                    "content": "",
                    "status": MessageStatus.STREAMING,
                    "model_path": clean_text(model_path),
                    "sampling": encode_sampling(sampling),
                },
                {},
            )
            return self._message(message_id)

    def save_reply(
        self,
        message_id: MessageId,
        content: str,
        token_ids: Sequence[TokenId] | None,
        reasoning: Reasoning | None = None,
    ) -> None:
        """What has been written so far. Raises NoSuchRecord if the reply is not streaming (any more)."""
        with writing(self._db):
            self._change_reply(message_id, content, token_ids, encode_reasoning(reasoning))

    def finish_reply(
        self,
        message_id: MessageId,
        *,
        status: MessageStatus,
        content: str,
        token_ids: Sequence[TokenId] | None,
        finish_reason: FinishReason | None = None,
        seed: int | None = None,
        counts: PromptCounts | None = None,
        timings: RequestTimings | None = None,
        num_generation_tokens: int | None = None,
        decode_tokens_per_second: float | None = None,
        bytes_read: int | None = None,
        miss: Miss | None = None,
        reasoning: Reasoning | None = None,
        error: str | None = None,
        asked_ids: Mapping[MessageId, Sequence[TokenId]] = MappingProxyType({}),
    ) -> StoredMessage:
        """The end of a streaming reply, once, and token ids of what was asked. Raises NoSuchRecord if it has ended."""
        if status is MessageStatus.STREAMING:
            raise ValueError("a finished reply cannot be streaming")
        ending: dict[str, Any] = {
            "status": status,
            "finish_reason": finish_reason,
            "seed": seed,
            "num_generation_tokens": num_generation_tokens,
            "decode_tokens_per_second": decode_tokens_per_second,
            "bytes_read": bytes_read,
            "error": clean_optional(error),
            **encode_counts(counts),
            **encode_timings(timings),
            **encode_miss(miss),
            **encode_reasoning(reasoning),
        }
        with writing(self._db):
            conversation_id = self._change_reply(message_id, content, token_ids, ending)
            for asked, ids in asked_ids.items():
                self._update("messages", asked, {"token_ids": encode_token_ids(ids)})
            self._update("conversations", conversation_id, {"updated_at": self._now_us()})
            return self._message(message_id)

    def withdraw(self, message_id: MessageId) -> Conversation:
        """Put a refused user message back into the draft, before what was typed since; its empty replies go.

        Raises ValueError if it was answered: no text that was written is ever removed.
        """
        with writing(self._db):
            message = self._message(message_id)
            replies = self._children(message)
            if message.role != "user" or any(
                reply.content or reply.reasoning or self._children(reply) for reply in replies
            ):
                raise ValueError("only a user message without an answer can be withdrawn")
            conversation = self._conversation(message.conversation_id)
            changes: dict[str, Any] = {
                "draft": "\n\n".join(text for text in (message.content, conversation.draft) if text)
            }
            gone = [message_id, *(reply.id for reply in replies)]
            if conversation.head_id in gone:
                changes["head_id"] = message.parent_id
            if message.parent_id is None and conversation.title == title_from(message.content):
                changes["title"] = ""
            self._update("conversations", conversation.id, changes)
            for withdrawn_id in reversed(gone):
                self._db.execute("DELETE FROM messages WHERE id = :id", {"id": withdrawn_id})
            return self._conversation(conversation.id)

    def message(self, message_id: MessageId) -> StoredMessage:
        with reading():
            return self._message(message_id)

    def branch(self, conversation_id: ConversationId) -> list[StoredMessage]:
        """The messages shown: from the first one to the head."""
        with reading():
            return [
                message_from(row) for row in self._db.query(_BRANCH, {"conversation_id": conversation_id})
            ]

    def mark_interrupted(self) -> int:
        """At start, before any reply begins: what still streams belongs to a process that died. How many replies."""
        with writing(self._db):
            return self._db.execute(
                "UPDATE messages SET status = :interrupted, error = :error WHERE status = 'streaming'",
                {"interrupted": MessageStatus.INTERRUPTED, "error": _APP_ENDED},
            ).rowcount

    def set_lock_timeout(self, seconds: float) -> None:
        """How long writes wait for another process's lock from now on."""
        self._db.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def integrity_check(self) -> list[str]:
        """What is wrong with the file or between its rows; empty: nothing."""
        with reading():
            verdicts = [row["integrity_check"] for row in self._db.query("PRAGMA integrity_check")]
            orphans = list(self._db.query("PRAGMA foreign_key_check"))
        return [verdict for verdict in verdicts if verdict != "ok"] + [
            f"row {row['rowid']} of {row['table']} points at a missing row of {row['parent']}"
            for row in orphans
        ]

    def _now_us(self) -> int:
        """Later than at any call before: what happens in order is listed in order, also by a clock of 15 ms ticks."""
        self._last_us = max(now_us(), self._last_us + 1)
        return self._last_us

    def _conversation(self, conversation_id: ConversationId) -> Conversation:
        return conversation_from(self._row("conversations", conversation_id))

    def _message(self, message_id: MessageId) -> StoredMessage:
        return message_from(self._row("messages", message_id))

    def _row(self, table: str, row_id: int) -> dict[str, Any]:
        for row in self._db.query(f"SELECT * FROM {table} WHERE id = :id", {"id": row_id}):
            return row
        raise NoSuchRecord(f"no row {row_id} in {table}")

    def _children(self, message: StoredMessage) -> list[StoredMessage]:
        sql = "SELECT * FROM messages WHERE conversation_id = :conversation_id AND parent_id = :parent_id"
        keys = {"conversation_id": message.conversation_id, "parent_id": message.id}
        return [message_from(row) for row in self._db.query(sql, keys)]

    def _message_of(self, conversation_id: ConversationId, message_id: MessageId) -> StoredMessage:
        message = self._message(message_id)
        if message.conversation_id != conversation_id:
            raise NoSuchRecord(f"message {message_id} is not in conversation {conversation_id}")
        return message

    def _change_conversation(self, conversation_id: ConversationId, changes: dict[str, Any]) -> None:
        with writing(self._db):
            self._update("conversations", conversation_id, changes)

    def _change_reply(
        self,
        message_id: MessageId,
        content: str,
        token_ids: Sequence[TokenId] | None,
        changes: dict[str, Any],
    ) -> ConversationId:
        message = self._message(message_id)
        if message.status is not MessageStatus.STREAMING:
            raise NoSuchRecord(f"message {message_id} is not streaming but {message.status}")
        saved = {
            "content": clean_text(content),
            "token_ids": encode_token_ids(token_ids),
            "updated_at": self._now_us(),
        }
        self._update("messages", message_id, saved | changes)
        return message.conversation_id

    def _add_message(
        self,
        conversation_id: ConversationId,
        parent_id: MessageId | None,
        message: dict[str, Any],
        conversation_changes: dict[str, Any],
    ) -> MessageId:
        if parent_id is not None:
            self._message_of(conversation_id, parent_id)
        now = self._now_us()
        row = {
            "conversation_id": conversation_id,
            "parent_id": parent_id,
            "created_at": now,
            "updated_at": now,
        }
        message_id = MessageId(self._insert("messages", row | message))
        head = {"head_id": message_id, "updated_at": now}
        self._update("conversations", conversation_id, head | conversation_changes)
        return message_id

    def _insert(self, table: str, row: dict[str, Any]) -> int:
        return cast(int, self._db.table(table).insert(row).last_pk)

    def _update(self, table: str, row_id: int, changes: dict[str, Any]) -> None:
        assignments = ", ".join(f"{column} = :{column}" for column in changes)
        sql = f"UPDATE {table} SET {assignments} WHERE id = :id"
        if not self._db.execute(sql, {**changes, "id": row_id}).rowcount:
            raise NoSuchRecord(f"no row {row_id} in {table}")
