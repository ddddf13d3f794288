"""The SQLite file: opened without harm, written in whole transactions."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_utils import Database

from desktop.conversations.errors import DatabaseUnusable, NotSaved, primary_code, reason_for
from desktop.conversations.migrations import check_schema, migrate

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def connect(path: Path, lock_timeout_s: float) -> Database:
    """Open or create, owner-only. Raises DatabaseUnusable: a damaged file is copied aside first, none is changed."""
    try:
        if path.exists():
            _inspect(path)
        # SQLite gives its -wal and -shm files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise DatabaseUnusable(
            f"The chats in {path} cannot be opened ({error.strerror}). Nothing was changed. "
            "Make the file and its folder writable, then start again."
        ) from error
    with reading():
        return Database(sqlite3.connect(path, timeout=lock_timeout_s), execute_plugins=False)


def prepare(db: Database) -> None:
    """Connection settings, then pending migrations. Raises DatabaseUnusable."""
    with reading():
        db.enable_wal()
        db.execute("PRAGMA foreign_keys = ON")
        # With WAL, NORMAL may lose the last commits when the power fails; a sent message must not be among them.
        db.execute("PRAGMA synchronous = FULL")
        # What the user purged must not be readable in the file's free pages.
        db.execute("PRAGMA secure_delete = ON")
        migrate(db)


@contextmanager
def writing(db: Database) -> Iterator[None]:
    """One transaction: all of it is on disk when the block is left, or none. Raises NotSaved.

    While another process holds the write lock, waits as long as the connection's timeout.
    """
    try:
        # IMMEDIATE: a transaction that begins by reading is refused at once, without waiting, if another
        # process wrote in between.
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.commit()
        except BaseException:
            db.rollback()
            raise
    except sqlite3.Error as error:
        reason = reason_for(error)
        if reason is None:
            raise
        raise NotSaved(f"Not saved: {reason}") from error


@contextmanager
def reading() -> Iterator[None]:
    """Raises DatabaseUnusable."""
    try:
        yield
    except sqlite3.Error as error:
        reason = reason_for(error)
        if reason is None:
            raise
        raise DatabaseUnusable(f"The chats cannot be read: {reason}") from error


def _inspect(path: Path) -> None:
    """Read only, so that a file that is damaged, newer or another program's is refused before anything writes to it."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            db = Database(connection, recursive_triggers=False, execute_plugins=False)
            [verdict] = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict == "ok":
                check_schema(db)
    except sqlite3.Error as error:
        # Anything else (say, a journal that only a writer may roll back) is for the opening proper to tell.
        verdict = str(error) if primary_code(error) in _DAMAGE else "ok"
    if verdict != "ok":
        raise DatabaseUnusable(
            f"The chats in {path} are damaged ({' '.join(verdict.split())}). The file was not changed; "
            f"{_copy_aside(path)}. Move it out of the folder to start with an empty list."
        )


def _copy_aside(path: Path) -> str:
    """Copy the file, and the log SQLite keeps beside it, under a name that says its content: once, not at each start."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    aside = path.with_name(f"{path.stem}.damaged-{digest}{path.suffix}")
    try:
        for suffix in ("-wal", ""):
            source, target = Path(f"{path}{suffix}"), Path(f"{aside}{suffix}")
            if source.exists() and source.stat().st_size and not target.exists():
                _copy(source, target)
    except OSError as error:
        Path(f"{aside}-wal").unlink(missing_ok=True)
        return f"no copy could be made ({error.strerror})"
    return f"a copy is {aside.name}"


def _copy(source: Path, target: Path) -> None:
    partial = Path(f"{target}.partial")
    try:
        shutil.copyfile(source, partial)
        partial.chmod(0o600)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
