"""The schema comes about once and is left alone afterwards."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from sqlite_utils import Database

from desktop.conversations import ChatSettings, ConversationId, ConversationStore, DatabaseUnusable
from desktop.conversations.migrations import migrations


def schema_of(database: Path) -> str:
    with Database(database) as db:
        return db.schema


def test_an_empty_file_becomes_a_database(database: Path) -> None:
    database.touch()
    store = ConversationStore.open(database)
    assert store.conversations() == []
    assert store.integrity_check() == []
    store.close()


def test_a_database_in_memory_will_do() -> None:
    store = ConversationStore(Database(memory=True))
    conversation = store.create_conversation("kept nowhere")
    assert store.conversations() == [conversation]
    store.close()


def test_chats_from_before_owners_and_receipts_get_the_one_and_do_without_the_other(database: Path) -> None:
    with Database(database) as db:
        migrations.apply(db, stop_before="m002_owners_private_chats_and_receipts")
        for title in ("One", "Two"):
            db.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES (?, 1, 1)", [title])
        db.execute(
            "INSERT INTO messages (conversation_id, role, status, created_at, updated_at, content, "
            "num_prompt_tokens, reused_tokens, restored_tokens, prefilled_tokens) "
            "VALUES (1, 'assistant', 'complete', 1, 1, 'Hello', 9, 0, 0, 9)"
        )
        db.execute("UPDATE conversations SET head_id = 1 WHERE id = 1")
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        owners = [conversation.owner for conversation in store.conversations()]
        assert [len(owner) for owner in owners] == [32, 32]
        assert len(set(owners)) == 2
        assert not any(chat.is_private or chat.is_pinned for chat in store.conversations())
        [reply] = store.branch(ConversationId(1))
        assert (reply.content, reply.bytes_read, reply.miss) == ("Hello", None, None)
        assert store.integrity_check() == []
    with contextlib.closing(ConversationStore.open(database)) as store:
        assert [conversation.owner for conversation in store.conversations()] == owners


def test_chats_from_before_settings_set_nothing_and_their_replies_name_no_template(database: Path) -> None:
    with Database(database) as db:
        migrations.apply(db, stop_before="m006_chat_settings_and_templates_used")
        db.execute(
            "INSERT INTO conversations (title, created_at, updated_at, owner) VALUES ('One', 1, 1, 'o')"
        )
        db.execute(
            "INSERT INTO messages (conversation_id, role, status, created_at, updated_at, content) "
            "VALUES (1, 'assistant', 'complete', 1, 1, 'Hello')"
        )
        db.execute("UPDATE conversations SET head_id = 1 WHERE id = 1")
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        [conversation] = store.conversations()
        assert conversation.settings == ChatSettings()
        [reply] = store.branch(conversation.id)
        assert (reply.content, reply.template) == ("Hello", None)


def test_a_value_that_this_version_does_not_take_costs_only_itself(database: Path) -> None:
    with contextlib.closing(ConversationStore.open(database)) as store:
        chat = store.create_conversation()
    with Database(database) as db:
        stored = '{"temperature": 0.2, "top_p": 7, "from_the_future": 1}'
        db.execute("UPDATE conversations SET sampling = ?", [stored])
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        assert store.conversation(chat.id).settings.sampling == {"temperature": 0.2}


def test_opening_again_changes_nothing(database: Path) -> None:
    ConversationStore.open(database).close()
    schema, content = schema_of(database), database.read_bytes()
    ConversationStore.open(database).close()
    assert schema_of(database) == schema
    assert database.read_bytes() == content


def test_a_start_that_was_cut_off_before_the_first_migration_is_finished(database: Path) -> None:
    with Database(database) as db:
        migrations.ensure_migrations_table(db)
    store = ConversationStore.open(database)
    assert store.conversations() == []
    store.close()


def test_every_connection_is_durable_and_checks_references(store: ConversationStore) -> None:
    def pragma(name: str) -> object:
        return store._db.execute(f"PRAGMA {name}").fetchone()[0]

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 2  # FULL
    assert pragma("foreign_keys") == 1
    assert pragma("busy_timeout") == 5000


def test_a_newer_schema_is_refused_and_left_as_it_is(database: Path) -> None:
    ConversationStore.open(database).close()
    with Database(database) as db:
        applied = {
            "migration_set": migrations.name,
            "name": "m999_from_the_future",
            "applied_at": "2030-01-01",
        }
        db.table("_sqlite_migrations").insert(applied)
    content = database.read_bytes()
    with pytest.raises(DatabaseUnusable, match="newer Everwarm"):
        ConversationStore.open(database)
    assert database.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_as_it_is(database: Path) -> None:
    with Database(database) as db:
        db.table("bookmarks").insert({"address": "https://example.org"})
    content = database.read_bytes()
    with pytest.raises(DatabaseUnusable, match="another program"):
        ConversationStore.open(database)
    assert database.read_bytes() == content
