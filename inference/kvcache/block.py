"""What the store holds: blocks, checkpoints and whole sequences, each named so that its file's name is all the index needs.

    block           b-<start>-<end>-<first token id>-<hash at start>-<hash at end>.kv
    checkpoint      c-<end>-<kind>-<hash at end>.kv
    whole sequence  w-<end>-<pos_min>-<hash at end>.kv

Numbers are decimal with leading zeros, so that every block's name has its fields at the same places.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NewType

from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import TokenArray

MAX_BLOCK_TOKENS = 256
TOKEN_BYTES = 4
HASH_BYTES = 16

# BLAKE2b-128 of the fingerprint and of all token ids from 0 to a position, as 32 hex digits, the way names hold it.
BlockHash = NewType("BlockHash", str)

CheckpointKind = Literal["system", "user", "turn"]

_DIGITS = 7
_LIMIT = 10**_DIGITS
_NUMBER = rf"[0-9]{{{_DIGITS}}}"
_HASH = rf"[0-9a-f]{{{2 * HASH_BYTES}}}"
_BLOCK_NAME = re.compile(rf"b-{_NUMBER}-{_NUMBER}-{_NUMBER}-{_HASH}-{_HASH}\.kv").fullmatch
_CHECKPOINT_NAME = re.compile(rf"c-{_NUMBER}-(?:system|user|turn)-{_HASH}\.kv").fullmatch
_WHOLE_NAME = re.compile(rf"w-{_NUMBER}-{_NUMBER}-{_HASH}\.kv").fullmatch
_START = slice(2, 9)
_END = slice(10, 17)
_FIRST_TOKEN = slice(18, 25)
PARENT_HASH = slice(26, 58)
_HASH_AT_END = slice(-35, -3)


class StoredEntry:
    """One file of the store, or one that waits for its turn to be written (is_stored false).

    last_access_ns: the newer of the last use in this process and modified_ns, the file's modification time, which
    tells all processes of uses. ref_count: open uses in this process. token_ids: cached when they have been read.
    """

    __slots__ = (
        "file_bytes",
        "folder",
        "is_stored",
        "last_access_ns",
        "modified_ns",
        "name",
        "ref_count",
        "token_ids",
    )

    def __init__(
        self, folder: str, name: str, file_bytes: int, modified_ns: int, is_stored: bool = True
    ) -> None:
        self.folder = folder
        self.name = name
        self.file_bytes = file_bytes
        self.modified_ns = modified_ns
        self.last_access_ns = modified_ns
        self.is_stored = is_stored
        self.ref_count = 0
        self.token_ids: TokenArray | None = None

    def set_stored(self, file_bytes: int, modified_ns: int) -> None:
        """Its file is there now."""
        self.is_stored = True
        self.file_bytes = file_bytes
        self.modified_ns = self.last_access_ns = modified_ns

    def __str__(self) -> str:
        """Where its file is in the store."""
        return f"{self.folder}/{self.name}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    @property
    def hash(self) -> BlockHash:
        return BlockHash(self.name[_HASH_AT_END])

    @property
    def end(self) -> int:
        raise NotImplementedError


class Block(StoredEntry):
    """The KV rows of the tokens [start, end)."""

    __slots__ = ()

    @property
    def start(self) -> int:
        return int(self.name[_START])

    @property
    def end(self) -> int:
        return int(self.name[_END])

    @property
    def first_token_id(self) -> int:
        return int(self.name[_FIRST_TOKEN])

    @property
    def parent_hash(self) -> BlockHash:
        return BlockHash(self.name[PARENT_HASH])


class Checkpoint(StoredEntry):
    """State that cannot be cut, valid when exactly `end` tokens have been decoded."""

    __slots__ = ()

    @property
    def end(self) -> int:
        return int(self.name[_START])

    @property
    def kind(self) -> CheckpointKind:
        kind: CheckpointKind = self.name.split("-")[2]  # type: ignore[assignment]
        return kind


class WholeSequence(StoredEntry):
    """The state of a whole sequence, where the layout is not one that can be cut. pos_min: as in ReuseRule."""

    __slots__ = ()

    @property
    def end(self) -> int:
        return int(self.name[_START])

    @property
    def pos_min(self) -> int:
        return int(self.name[_END])


def entry_from_name(folder: str, name: str, file_bytes: int, modified_ns: int) -> StoredEntry | None:
    """None: not a name of ours."""
    if _BLOCK_NAME(name):
        return Block(folder, name, file_bytes, modified_ns)
    if _CHECKPOINT_NAME(name):
        return Checkpoint(folder, name, file_bytes, modified_ns)
    if _WHOLE_NAME(name):
        return WholeSequence(folder, name, file_bytes, modified_ns)
    return None


def block_name(
    start: int, end: int, first_token_id: int, parent_hash: BlockHash, hash_at_end: BlockHash
) -> str:
    return f"b-{_number(start)}-{_number(end)}-{_number(first_token_id)}-{parent_hash}-{hash_at_end}.kv"


def checkpoint_name(end: int, kind: CheckpointKind, hash_at_end: BlockHash) -> str:
    return f"c-{_number(end)}-{kind}-{hash_at_end}.kv"


def whole_name(end: int, pos_min: int, hash_at_end: BlockHash) -> str:
    return f"w-{_number(end)}-{_number(pos_min)}-{hash_at_end}.kv"


def folder_name(fingerprint: Fingerprint) -> str:
    """The folder of one fingerprint's files: half of it, to keep paths short; each file holds all of it."""
    return fingerprint.hex()[: 2 * HASH_BYTES]


def _number(value: int) -> str:
    if not 0 <= value < _LIMIT:
        raise ValueError(f"{value} does not fit into {_DIGITS} digits")
    return f"{value:0{_DIGITS}d}"


def token_bytes(token_ids: TokenArray) -> bytes:
    """Little-endian i32, the form in which ids are hashed and stored."""
    return token_ids.astype("<i4").tobytes()


def prefix_hasher(fingerprint: Fingerprint) -> hashlib.blake2b:
    """The hash state of the empty prefix; updated with token_bytes it gives the hash of any other."""
    return hashlib.blake2b(fingerprint, digest_size=HASH_BYTES)


def prefix_hashes(
    fingerprint: Fingerprint, token_ids: TokenArray, ends: Iterable[int]
) -> Iterator[BlockHash]:
    """H(fingerprint, token_ids[:end]) for each of the ascending ends, in one pass over the ids."""
    hasher = prefix_hasher(fingerprint)
    data = memoryview(token_bytes(token_ids))
    position = 0
    for end in ends:
        hasher.update(data[position * TOKEN_BYTES : end * TOKEN_BYTES])
        position = end
        yield BlockHash(hasher.hexdigest())
