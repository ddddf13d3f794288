"""Who needs which prefixes: references of opaque owners (a chat, say), one small file each, and which owners are pinned,
one empty file each.

A file of references, little-endian: 8s magic, u32 version, u32 num_branches, per branch 32s fingerprint, u32 num_tokens, num_tokens x i32;
at the end u64 XXH3-64 of everything before it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from inference.kvcache.block import TOKEN_BYTES, token_bytes
from inference.kvcache.block_file import open_regular, remove_abandoned_files, write_file
from inference.kvcache.fingerprint import FINGERPRINT_BYTES, Fingerprint
from inference.kvcache.reuse import TokenArray, common_prefix_length

_logger = logging.getLogger(__name__)
_MAGIC = b"EWKVREFS"
_VERSION = 1
_HEADER = struct.Struct("<8sII")
_BRANCH = struct.Struct(f"<{FINGERPRINT_BYTES}sI")
_CHECKSUM = struct.Struct("<Q")
_REFERENCE_SUFFIX = ".refs"
_FORGOTTEN_SUFFIX = ".forgotten"
_PIN_SUFFIX = ".pin"


@dataclass(frozen=True, slots=True)
class Branch:
    """A prefix that somebody needs."""

    fingerprint: Fingerprint
    token_ids: TokenArray = field(repr=False)

    def begins_with(self, other: Branch) -> bool:
        return (
            self.fingerprint == other.fingerprint
            and common_prefix_length(self.token_ids, other.token_ids) == other.token_ids.size
        )


class Owners:
    """Names of owners are hashed: their files tell nothing of them. Every process reads the files anew."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the folder can neither be found nor made."""
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned_files(folder, os.listdir(folder))

    def set_reference(self, owner: str, branch: Branch) -> None:
        """Add a branch; those of this owner that it extends give way to it. Raises OSError."""
        path = self._path(owner)
        branches = self._read(path)
        if any(known.begins_with(branch) for known in branches):
            return
        _write(path, [known for known in branches if not branch.begins_with(known)] + [branch])

    def references(self) -> Iterator[Branch]:
        return self._branches(_REFERENCE_SUFFIX)

    def num_references(self) -> int:
        return sum(1 for _ in self._paths(_REFERENCE_SUFFIX))

    def forget(self, owner: str) -> list[Branch]:
        """Take the owner's references away; they stay listed as forgotten until what they alone needed is removed.

        In two steps so that a crash between them loses neither. Raises OSError.
        """
        path = self._path(owner)
        branches = self._read(path)
        if branches:
            forgotten = path.with_suffix(_FORGOTTEN_SUFFIX)
            _write(forgotten, [*self._read(forgotten), *branches])
        path.unlink(missing_ok=True)
        path.with_suffix(_PIN_SUFFIX).unlink(missing_ok=True)
        return branches

    def forgotten(self) -> list[tuple[Path, list[Branch]]]:
        return [(path, self._read(path)) for path in self._paths(_FORGOTTEN_SUFFIX)]

    def set_pins(self, owners: Iterable[str]) -> None:
        """Pin these owners and no others; one without references yet is pinned from its first on. Raises OSError."""
        wanted = {self._path(owner).with_suffix(_PIN_SUFFIX) for owner in owners}
        pinned = set(self._paths(_PIN_SUFFIX))
        for path in sorted(wanted - pinned):
            write_file(path)
        for path in sorted(pinned - wanted):
            path.unlink(missing_ok=True)

    def pins(self) -> Iterator[Branch]:
        """The branches of pinned owners."""
        for path in self._paths(_PIN_SUFFIX):
            yield from self._read(path.with_suffix(_REFERENCE_SUFFIX))

    def num_pins(self) -> int:
        return sum(1 for _ in self._paths(_PIN_SUFFIX))

    def wipe(self) -> None:
        """Raises OSError."""
        for suffix in (_REFERENCE_SUFFIX, _FORGOTTEN_SUFFIX, _PIN_SUFFIX):
            for path in self._paths(suffix):
                path.unlink(missing_ok=True)

    def _path(self, owner: str) -> Path:
        return self._folder / (
            hashlib.blake2b(owner.encode(), digest_size=16).hexdigest() + _REFERENCE_SUFFIX
        )

    def _paths(self, suffix: str) -> Iterator[Path]:
        return (path for path in sorted(self._folder.glob(f"*{suffix}")) if not path.name.startswith("."))

    def _branches(self, suffix: str) -> Iterator[Branch]:
        for path in self._paths(suffix):
            yield from self._read(path)

    def _read(self, path: Path) -> list[Branch]:
        """Of a damaged file, which is removed, none: its entries are then cached like any nobody claims."""
        try:
            with open_regular(path) as file:
                return _decode(file.read())
        except FileNotFoundError:
            return []
        except OSError as error:
            _logger.warning("%s cannot be read: %s", path.name, error)
            return []
        except ValueError as error:
            _logger.warning("%s is removed: %s", path.name, error)
            path.unlink(missing_ok=True)
            return []


def _write(path: Path, branches: list[Branch]) -> None:
    parts = [_HEADER.pack(_MAGIC, _VERSION, len(branches))]
    for branch in branches:
        parts += [_BRANCH.pack(branch.fingerprint, branch.token_ids.size), token_bytes(branch.token_ids)]
    data = b"".join(parts)
    write_file(path, data + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(data)))


def _decode(data: bytes) -> list[Branch]:
    """Raises ValueError."""
    body = data[: -_CHECKSUM.size]
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise ValueError(f"only {len(data)} bytes long")
    if _CHECKSUM.unpack(data[-_CHECKSUM.size :])[0] != xxhash.xxh3_64_intdigest(body):
        raise ValueError("its checksum does not match")
    magic, version, num_branches = _HEADER.unpack_from(body)
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError("not a file of references")
    branches = []
    offset = _HEADER.size
    for _ in range(num_branches):
        fingerprint, num_tokens = _BRANCH.unpack_from(body, offset)
        offset += _BRANCH.size
        token_ids = np.frombuffer(body, dtype="<i4", count=num_tokens, offset=offset).astype(np.int32)
        offset += num_tokens * TOKEN_BYTES
        branches.append(Branch(Fingerprint(fingerprint), token_ids))
    return branches
