"""Full-text search over all chats. The index is kept by triggers (migrations.m008), so that no write can forget it."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from desktop.conversations.database import reading, writing
from desktop.conversations.records import ConversationId, MessageId
from desktop.conversations.rows import from_us
from desktop.conversations.search_query import SearchQuery
from desktop.conversations.snippet import Snippet, best_snippet
from desktop.conversations.store import ConversationStore

MAX_HITS = 60
MAX_TITLE_HITS = 20
# Imported messages have the ids of their import, so that the newest ones are looked for among some more.
_CANDIDATES = 4 * MAX_HITS
_MERGED_PAGES = 500
"""Of the index at a time, some 10 ms: whoever opens a chat meanwhile does not wait for more."""

# CROSS JOIN keeps the order: the index is walked from its newest row and left when there is enough.
_MESSAGES = """
    SELECT messages.id, messages.created_at FROM messages_fts
    CROSS JOIN messages ON messages.id = messages_fts.rowid
    CROSS JOIN conversations ON conversations.id = messages.conversation_id
    WHERE messages_fts MATCH :match AND conversations.deleted_at IS NULL
    ORDER BY messages_fts.rowid DESC LIMIT :limit
"""
_TITLES = """
    SELECT conversations.id, conversations.title, updated_at FROM conversations_fts
    CROSS JOIN conversations ON conversations.id = conversations_fts.rowid
    WHERE conversations_fts MATCH :match AND deleted_at IS NULL
    ORDER BY updated_at DESC LIMIT :limit
"""
_HIT = """
    SELECT messages.id, conversation_id, title, role, content, reasoning, messages.created_at
    FROM messages JOIN conversations ON conversations.id = conversation_id WHERE messages.id = :id
"""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """message_id None: the chat's title is what was found. role: of the message. when: UTC."""

    conversation_id: ConversationId
    title: str
    message_id: MessageId | None
    role: str
    snippet: Snippet
    when: datetime


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Titles first, then messages: those that have the words whole before those where they begin longer ones, each
    newest first. is_cut: there are more."""

    hits: tuple[SearchHit, ...]
    is_cut: bool = False


def search_chats(store: ConversationStore, typed: str) -> SearchResults:
    """Any text may be typed. Deleted chats are not searched. Raises DatabaseUnusable."""
    query = SearchQuery.parse(typed)
    if not query.terms:
        return SearchResults(())
    with reading():
        titles = [_title_hit(row, query) for row in _tiers(store, _TITLES, query, MAX_TITLE_HITS + 1)]
        ids = [row["id"] for row in _tiers(store, _MESSAGES, query, _CANDIDATES)]
        messages = [_message_hit(store, message_id, query) for message_id in ids[:MAX_HITS]]
    is_cut = len(titles) > MAX_TITLE_HITS or len(ids) > MAX_HITS
    return SearchResults((*titles[:MAX_TITLE_HITS], *messages), is_cut)


def remove_deleted_words(store: ConversationStore) -> bool:
    """After a purge, and at start for one that was cut off: removes from the index what SQLite only marks as deleted
    there, some of it at each call. False: nothing is left. Raises NotSaved."""
    with reading():
        [[state]] = store._db.execute("SELECT state FROM search_upkeep").fetchall()
    if state == "clean":
        return False
    with writing(store._db):
        if state == "deleted":
            # Titles are few.
            store._db.execute("INSERT INTO conversations_fts (conversations_fts) VALUES ('optimize')")
        before = store._db.conn.total_changes
        # A negative number begins to join all parts of the index into one, a positive one goes on with it.
        pages = -_MERGED_PAGES if state == "deleted" else _MERGED_PAGES
        store._db.execute("INSERT INTO messages_fts (messages_fts, rank) VALUES ('merge', ?)", [pages])
        # SQLite's documentation: less than two changes, and there was nothing to do.
        is_done = state == "merging" and store._db.conn.total_changes - before < 2
        store._db.execute("UPDATE search_upkeep SET state = ?", ["clean" if is_done else "merging"])
    if is_done:
        # The words may still be in the write-ahead log. If a reader is in the way, the next checkpoint does it.
        with contextlib.suppress(sqlite3.OperationalError):
            store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return not is_done


def _tiers(store: ConversationStore, sql: str, query: SearchQuery, limit: int) -> list[dict[str, Any]]:
    """Rows with whole words, then the others; no row twice."""
    found: dict[int, dict[str, Any]] = {}
    for whole_words in (True, False):
        if len(found) < limit:
            match = query.match(whole_words=whole_words)
            rows = list(store._db.query(sql, {"match": match, "limit": limit}))
            rows.sort(key=lambda row: row.get("created_at") or row.get("updated_at") or 0, reverse=True)
            for row in rows:
                found.setdefault(row["id"], row)
    return list(found.values())[:limit]


def _title_hit(row: dict[str, Any], query: SearchQuery) -> SearchHit:
    snippet = best_snippet(row["title"], query)
    when = from_us(row["updated_at"])
    return SearchHit(ConversationId(row["id"]), row["title"], None, "", snippet, when)


def _message_hit(store: ConversationStore, message_id: int, query: SearchQuery) -> SearchHit:
    [row] = store._db.query(_HIT, {"id": message_id})
    snippet = best_snippet(row["content"], query)
    if row["reasoning"] and len(snippet.marks) == 0:
        snippet = best_snippet(row["reasoning"], query)
    conversation_id, when = ConversationId(row["conversation_id"]), from_us(row["created_at"])
    return SearchHit(conversation_id, row["title"], MessageId(message_id), row["role"], snippet, when)
