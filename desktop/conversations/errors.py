"""What can go wrong between the app and its database. `str()` of each is one line for the user."""

from __future__ import annotations

import sqlite3


class StoreError(Exception):
    """Of the user's doing or the machine's; a wrong call raises ValueError or NoSuchRecord instead."""


class NotSaved(StoreError):
    """A write did not happen, not even in part. The store stays usable and the same call may be repeated."""


class DatabaseUnusable(StoreError):
    """The database cannot be opened or read. Its file was not changed."""


class NoSuchRecord(LookupError):
    """There is no conversation or message of this id where one was expected."""


# By primary result code. Codes that are missing here (constraint, misuse) are faults of ours and stay as they are.
_REASONS = {
    sqlite3.SQLITE_BUSY: "another program is using the chats file. Close it, then try again.",
    sqlite3.SQLITE_LOCKED: "another program is using the chats file. Close it, then try again.",
    sqlite3.SQLITE_FULL: "the disk is full. Free some space, then try again.",
    sqlite3.SQLITE_IOERR: "the disk reported an error. Check it, then try again.",
    sqlite3.SQLITE_READONLY: "the chats file is read-only. Make it and its folder writable, then try again.",
    sqlite3.SQLITE_CANTOPEN: "the chats file cannot be opened. Check that its folder is there and writable.",
    sqlite3.SQLITE_PERM: "there is no permission to use the chats file. Change its permissions, then try again.",
    sqlite3.SQLITE_AUTH: "there is no permission to use the chats file. Change its permissions, then try again.",
    sqlite3.SQLITE_NOMEM: "the memory is full. Close other programs, then try again.",
    sqlite3.SQLITE_TOOBIG: "the text is too long.",
    sqlite3.SQLITE_CORRUPT: "the chats file is damaged. Start Everwarm again: it will keep a copy.",
    sqlite3.SQLITE_NOTADB: "the chats file is damaged. Start Everwarm again: it will keep a copy.",
}


def primary_code(error: sqlite3.Error) -> int | None:
    """What kind of error SQLite met; None: raised by Python's module, not by SQLite."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if (
        code == sqlite3.SQLITE_IOERR_SHMSIZE
    ):  # no room for the -shm file; everywhere else SQLite says FULL itself
        return sqlite3.SQLITE_FULL
    return None if code is None else code & 0xFF


def reason_for(error: sqlite3.Error) -> str | None:
    """Why, and what to do. None: the error is a fault of ours."""
    code = primary_code(error)
    return None if code is None else _REASONS.get(code)
