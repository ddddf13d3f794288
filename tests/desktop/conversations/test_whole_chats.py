"""Chats read and added as a whole: all of them or nothing, and each only once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from sqlite_utils import Database

from desktop.conversations import ConversationStore
from desktop.conversations.migrations import migrations
from desktop.conversations.whole_chats import (
    ChatUnusable,
    TreeMessage,
    WholeChat,
    add_whole_chat,
    read_whole_chat,
)

CHAT = {"title": "One", "created_at": 1, "updated_at": 2}
HELLO = {"role": "user", "status": "complete", "content": "Hello", "created_at": 1, "updated_at": 1}


def test_a_chat_is_the_same_when_it_is_read_again(store: ConversationStore) -> None:
    messages = (
        TreeMessage(None, HELLO),
        TreeMessage(0, {**HELLO, "role": "assistant"}),
        TreeMessage(0, HELLO),
    )
    added = add_whole_chat(store, WholeChat(CHAT, messages, head=1, origin="elsewhere:1"))
    assert added is not None
    chat = read_whole_chat(store, added)
    assert chat.columns.items() >= CHAT.items()
    assert [message.parent for message in chat.messages] == [None, 0, 0]
    assert all(message.columns.items() >= HELLO.items() for message in (chat.messages[0], chat.messages[2]))
    assert chat.head == 1
    assert [message.role for message in store.branch(added)] == ["user", "assistant"]


def test_nothing_of_a_chat_stays_when_one_of_its_values_is_refused(store: ConversationStore) -> None:
    for changes in ({"status": "unheard of"}, {"seed": "seven"}, {"created_at": None}):
        messages = (TreeMessage(None, HELLO), TreeMessage(0, {**HELLO, **changes}))
        with pytest.raises(ChatUnusable):
            add_whole_chat(store, WholeChat(CHAT, messages, head=1))
    assert store.conversations() == []
    assert store.integrity_check() == []


def test_the_same_content_from_two_chats_is_two_chats(store: ConversationStore) -> None:
    messages = (TreeMessage(None, HELLO),)
    for origin in ("elsewhere:1", "elsewhere:2", ""):
        assert add_whole_chat(store, WholeChat(CHAT, messages, 0, origin)) is not None
        assert add_whole_chat(store, WholeChat(CHAT, messages, 0, origin)) is None
    assert len(store.conversations()) == 3


def test_chats_from_before_imports_are_known_by_their_owner(database: Path) -> None:
    with Database(database) as db:
        migrations.apply(db, stop_before="m007_imported_chats")
        columns = "(title, created_at, updated_at, owner)"
        db.execute(f"INSERT INTO conversations {columns} VALUES ('One', 1, 1, 'abc')")
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        [conversation] = store.conversations()
        chat = read_whole_chat(store, conversation.id)
        assert chat.origin == "everwarm:abc"
        assert add_whole_chat(store, chat) is None
        assert store.integrity_check() == []
