"""Full, locked, read-only and damaged: what was saved stays, and the user is told in one line."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from desktop.conversations import Conversation, ConversationStore, DatabaseUnusable, NotSaved
from tests.desktop.conversations.conftest import fill

HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another_process(database: Path) -> Iterator[None]:
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield
        holder.communicate("")


def contents(store: ConversationStore, conversation: Conversation) -> list[str]:
    return [message.content for message in store.branch(conversation.id)]


def damage(database: Path) -> None:
    """Overwrite every page after the first."""
    content = database.read_bytes()
    database.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def filled(database: Path, content: str = "hello") -> None:
    store = ConversationStore.open(database)
    conversation = store.create_conversation()
    store.add_user_message(conversation.id, content, None)
    store.close()


def test_on_a_full_disk_nothing_is_half_saved_and_writing_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    store = ConversationStore.open(small_disk / "chats.sqlite3")
    conversation = store.create_conversation()
    first = store.add_user_message(conversation.id, "first", None)
    store.set_draft(conversation.id, "second")
    ballast = fill(small_disk)
    with pytest.raises(NotSaved, match="disk is full") as refusal:
        store.add_user_message(conversation.id, "second " * 10_000, first.id)
    assert "\n" not in str(refusal.value)
    assert contents(store, conversation) == ["first"]
    assert store.conversation(conversation.id).draft == "second"
    ballast.unlink()
    store.add_user_message(conversation.id, "second", first.id)
    assert contents(store, conversation) == ["first", "second"]
    assert store.integrity_check() == []
    store.close()


@pytest.mark.parametrize("had_chats", [True, False])
def test_no_room_to_open_the_database_is_said(small_disk: Path, had_chats: bool) -> None:
    database = small_disk / "chats.sqlite3"
    if had_chats:
        filled(database)
    fill(small_disk)
    with pytest.raises(DatabaseUnusable, match="disk is full"):
        ConversationStore.open(database)


def test_while_another_process_holds_the_lock_reading_works_and_writing_gives_up_in_time(
    database: Path,
) -> None:
    store = ConversationStore.open(database, lock_timeout_s=0.1)
    conversation = store.create_conversation()
    with locked_by_another_process(database):
        with pytest.raises(NotSaved, match="another program"):
            store.add_user_message(conversation.id, "hello", None)
        assert contents(store, conversation) == []
    store.add_user_message(conversation.id, "hello", None)
    assert contents(store, conversation) == ["hello"]
    store.close()


def test_a_write_waits_for_a_lock_that_is_let_go(database: Path) -> None:
    store = ConversationStore.open(database, lock_timeout_s=60.0)
    conversation = store.create_conversation()
    let_go_soon = HOLD_THE_LOCK.replace("sys.stdin.read()", "import time; time.sleep(0.3)")
    command = [sys.executable, "-c", let_go_soon, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        store.add_user_message(conversation.id, "hello", None)
    assert contents(store, conversation) == ["hello"]
    store.close()


def test_a_block_that_fails_midway_leaves_nothing_behind(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    store._db.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON conversations BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(sqlite3.IntegrityError):
        store.add_user_message(conversation.id, "hello", None)
    assert store._db.execute("SELECT count(*) FROM messages").fetchone()[0] == 0
    assert not store._db.conn.in_transaction


def test_a_read_only_disk_is_said_and_not_tried_further(
    small_disk: Path, make_read_only: Callable[[], None]
) -> None:
    database = small_disk / "chats.sqlite3"
    filled(database)
    make_read_only()
    with pytest.raises(DatabaseUnusable, match="Read-only"):
        ConversationStore.open(database)


def test_a_disk_that_turns_read_only_refuses_a_write_and_still_reads(
    store: ConversationStore,
) -> None:
    conversation = store.create_conversation("kept")
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(NotSaved, match="read-only"):
        store.rename(conversation.id, "lost")
    assert store.conversation(conversation.id).title == "kept"


@pytest.mark.parametrize("name", ["missing/chats.sqlite3", "a_file/chats.sqlite3", "."])
def test_a_place_where_no_file_can_be_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_file").touch()
    with pytest.raises(DatabaseUnusable, match="cannot be opened"):
        ConversationStore.open(tmp_path / name)


@pytest.mark.parametrize("content", [b"not a database at all " * 100, None])
def test_a_damaged_file_is_copied_aside_once_and_never_changed(database: Path, content: bytes | None) -> None:
    if content is None:
        filled(database)
        damage(database)
    else:
        database.write_bytes(content)
    found = database.read_bytes()
    for _start in range(2):
        with pytest.raises(DatabaseUnusable, match="damaged") as refusal:
            ConversationStore.open(database)
        assert database.read_bytes() == found
        [aside] = database.parent.glob("chats.damaged-*.sqlite3")
        assert aside.read_bytes() == found
        assert aside.name in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_damaged_file_for_whose_copy_there_is_no_room_is_still_not_changed(small_disk: Path) -> None:
    database = small_disk / "chats.sqlite3"
    filled(database, "hello " * 20_000)
    damage(database)
    found = database.read_bytes()
    ballast = fill(small_disk)
    os.truncate(ballast, ballast.stat().st_size - 65_536)  # for the -shm file
    with pytest.raises(DatabaseUnusable, match="no copy could be made"):
        ConversationStore.open(database)
    assert database.read_bytes() == found
    assert not list(small_disk.glob("*damaged*"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits")
def test_the_database_and_its_log_are_readable_by_their_owner_only(database: Path) -> None:
    database.touch(mode=0o644)
    store = ConversationStore.open(database)
    store.create_conversation()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in database.parent.iterdir()}
    store.close()
    assert modes == {
        "chats.sqlite3": 0o600,
        "chats.sqlite3-wal": 0o600,
        "chats.sqlite3-shm": 0o600,
    }
