"""Imports into a store in memory, in as few words as a test wants to spend on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sqlite_utils import Database

from desktop.conversations import Conversation, ConversationStore, StoredMessage
from desktop.conversations.whole_chats import WholeChat, chat_columns, read_whole_chat
from desktop.exchange import (
    ExportChoice,
    ExportFormat,
    ImportReport,
    IncomingChat,
    add_incoming,
    export_chats,
    import_chats,
)

FIXTURES = Path(__file__).parent / "fixtures"


def new_store() -> ConversationStore:
    return ConversationStore(Database(memory=True))


def import_into(store: ConversationStore, *paths: Path) -> ImportReport:
    columns = chat_columns(store)

    def add(chat: IncomingChat):  # type: ignore[no-untyped-def]
        return add_incoming(store, chat)

    return import_chats(paths, columns, add)


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def chat_titled(store: ConversationStore, title: str) -> Conversation:
    [found] = [conversation for conversation in store.conversations() if conversation.title == title]
    return found


def said(store: ConversationStore, title: str) -> list[tuple[str, str]]:
    """Role and text of the branch that is shown."""
    return [(m.role, m.content) for m in branch_of(store, title)]


def branch_of(store: ConversationStore, title: str) -> list[StoredMessage]:
    return store.branch(chat_titled(store, title).id)


def whole(store: ConversationStore) -> list[WholeChat]:
    return [read_whole_chat(store, conversation.id) for conversation in store.conversations()]


def export_all(store: ConversationStore, path: Path, format: ExportFormat = ExportFormat.JSON) -> Path:
    titles: Sequence[str] = [conversation.title for conversation in store.conversations()]
    export_chats(whole(store), titles, path, ExportChoice(format))
    return path
