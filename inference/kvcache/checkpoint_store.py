"""A folder of checkpoint files and the index over them. The files are the only truth; any of them may vanish."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from inference.kvcache.checkpoint_file import (
    CheckpointHeader,
    DamagedCheckpoint,
    StateBytes,
    checkpoint_name,
    encode_prefix,
    mapped_state,
    read_header_and_tokens,
)
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import ReuseRule, TokenArray, common_prefix_length

_logger = logging.getLogger(__name__)
_TEMPORARY_PREFIX = ".tmp-"
_WRITE_CHUNK_BYTES = 1 << 24


@dataclass(slots=True)
class Checkpoint:
    """One indexed file. last_access_ns: its modification time, set anew at each use."""

    path: Path
    header: CheckpointHeader
    token_ids: TokenArray = field(repr=False)
    last_access_ns: int


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """num_cached_tokens of the prompt can be taken from checkpoint."""

    checkpoint: Checkpoint
    num_cached_tokens: int


class CheckpointStore:
    """Content-addressed: equal token ids under one fingerprint are one file. Safe for several threads and processes.

    Counters (bytes_read, bytes_written) count what really passed to or from files.
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        """Raises OSError if the folder can neither be opened nor made."""
        self.folder = folder
        self.budget_bytes = budget_bytes
        self.bytes_read = 0
        self.bytes_written = 0
        self._checkpoints: dict[str, Checkpoint] = {}
        self._folder_changed_ns: int | None = None
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_abandoned_files()
        self._scan()

    @property
    def store_bytes(self) -> int:
        with self._lock:
            return sum(checkpoint.header.file_bytes for checkpoint in self._checkpoints.values())

    def match_prefix(
        self, fingerprint: Fingerprint, token_ids: TokenArray, rule: ReuseRule, *, max_hit_length: int
    ) -> PrefixMatch | None:
        """The checkpoint that covers most of the prompt; of equals, the smallest. None: nothing can be used."""
        self._scan()
        best: PrefixMatch | None = None
        with self._lock:
            candidates = [c for c in self._checkpoints.values() if c.header.fingerprint == fingerprint]
        for checkpoint in candidates:
            usable = rule.usable_tokens(
                num_common=common_prefix_length(checkpoint.token_ids, token_ids),
                num_held=checkpoint.header.num_tokens,
                pos_min=checkpoint.header.pos_min,
                max_hit_length=max_hit_length,
            )
            if usable and (best is None or _is_better(checkpoint, usable, best)):
                best = PrefixMatch(checkpoint, usable)
        return best

    @contextmanager
    def open_state(self, checkpoint: Checkpoint) -> Iterator[StateBytes | None]:
        """The verified state bytes, valid inside the block. None: gone or damaged, and no longer in the index."""
        try:
            context = mapped_state(checkpoint.path, checkpoint.header)
            state = context.__enter__()
        except FileNotFoundError:
            _logger.info("%s is gone: a miss", checkpoint.path.name)
            self._forget(checkpoint)
            yield None
            return
        except (OSError, DamagedCheckpoint) as error:
            _logger.warning("%s is removed: %s", checkpoint.path.name, error)
            self.remove(checkpoint)
            yield None
            return
        try:
            self.bytes_read += checkpoint.header.file_bytes
            self._touch(checkpoint)
            yield state
        finally:
            del state
            context.__exit__(None, None, None)

    def write(
        self, fingerprint: Fingerprint, token_ids: TokenArray, pos_min: int, state: StateBytes
    ) -> Checkpoint:
        """Store a sequence's state under its content's name, or touch it if it is there. Raises OSError."""
        name = checkpoint_name(fingerprint, token_ids)
        with self._lock:
            known = self._checkpoints.get(name)
        if known is not None and known.path.exists():
            self._touch(known)
            return known
        path = self.folder / name
        temporary = self.folder / f"{_TEMPORARY_PREFIX}{os.getpid()}-{name}"
        prefix = encode_prefix(fingerprint, token_ids, pos_min, state)
        try:
            self._write_file(temporary, (memoryview(prefix), state.data))
            # No fsync: a file that a power cut left incomplete fails its checksum and is a miss, nothing more.
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        header, _ = read_header_and_tokens(path)
        checkpoint = Checkpoint(path, header, token_ids, path.stat().st_mtime_ns)
        with self._lock:
            self._checkpoints[name] = checkpoint
        return checkpoint

    def _write_file(self, path: Path, parts: tuple[memoryview, ...]) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for part in parts:
                while part:
                    written = os.write(descriptor, part[:_WRITE_CHUNK_BYTES])
                    self.bytes_written += written
                    part = part[written:]
        finally:
            os.close(descriptor)

    def remove_prefixes_of(self, newest: Checkpoint) -> None:
        """Remove checkpoints that `newest` extends: for a model that can use any prefix they say nothing more."""
        with self._lock:
            candidates = list(self._checkpoints.values())
        for checkpoint in candidates:
            shorter = checkpoint.header.num_tokens < newest.header.num_tokens
            if shorter and checkpoint.header.fingerprint == newest.header.fingerprint:
                common = common_prefix_length(checkpoint.token_ids, newest.token_ids)
                if common == checkpoint.header.num_tokens:
                    self.remove(checkpoint)

    def evict_to_budget(self) -> None:
        """Least recently used first, until the files are within budget_bytes."""
        with self._lock:
            by_age = sorted(self._checkpoints.values(), key=lambda checkpoint: checkpoint.last_access_ns)
        excess = self.store_bytes - self.budget_bytes
        for checkpoint in by_age:
            if excess <= 0:
                return
            excess -= checkpoint.header.file_bytes
            _logger.info("%s (%d tokens) is evicted", checkpoint.path.name, checkpoint.header.num_tokens)
            self.remove(checkpoint)

    def _scan(self) -> None:
        """Bring the index up to the files, if the folder changed since it was last read."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            if changed_ns == self._folder_changed_ns:
                return
            paths = {
                entry.name: Path(entry.path)
                for entry in os.scandir(self.folder)
                if entry.name.endswith(".kvseq")
            }
        except OSError as error:
            _logger.warning("the store cannot be read: %s", error)
            return
        for name, path in paths.items():
            if name not in self._checkpoints:
                self._index(path)
        with self._lock:
            for name in self._checkpoints.keys() - paths.keys():
                del self._checkpoints[name]
        self._folder_changed_ns = changed_ns

    def _index(self, path: Path) -> None:
        try:
            header, token_ids = read_header_and_tokens(path)
            checkpoint = Checkpoint(path, header, token_ids, path.stat().st_mtime_ns)
        except FileNotFoundError:
            return
        except DamagedCheckpoint as error:
            _logger.warning("%s is removed: %s", path.name, error)
            _unlink(path)
            return
        except OSError as error:
            _logger.warning("%s is not used: %s", path.name, error)
            return
        with self._lock:
            self._checkpoints[path.name] = checkpoint

    def _touch(self, checkpoint: Checkpoint) -> None:
        try:
            os.utime(checkpoint.path)
            checkpoint.last_access_ns = checkpoint.path.stat().st_mtime_ns
        except OSError as error:
            _logger.info("%s could not be touched: %s", checkpoint.path.name, error)

    def _forget(self, checkpoint: Checkpoint) -> None:
        with self._lock:
            self._checkpoints.pop(checkpoint.path.name, None)

    def remove(self, checkpoint: Checkpoint) -> None:
        self._forget(checkpoint)
        _unlink(checkpoint.path)

    def _remove_abandoned_files(self) -> None:
        """Temporary files of processes that no longer run."""
        for path in self.folder.glob(f"{_TEMPORARY_PREFIX}*"):
            owner = path.name.removeprefix(_TEMPORARY_PREFIX).partition("-")[0]
            if not owner.isdigit() or not psutil.pid_exists(int(owner)) or int(owner) == os.getpid():
                _unlink(path)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _logger.warning("%s could not be removed: %s", path.name, error)


def _is_better(checkpoint: Checkpoint, usable: int, best: PrefixMatch) -> bool:
    size, best_size = checkpoint.header.file_bytes, best.checkpoint.header.file_bytes
    return usable > best.num_cached_tokens or (usable == best.num_cached_tokens and size < best_size)
