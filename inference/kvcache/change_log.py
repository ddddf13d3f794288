"""A log of what was written to and evicted from a store, shared by its processes. It may be lost without harm.

One line a change, appended in one write: `2026-11-30 +5767168` bytes were written, `2026-11-30 -0000512-<hash>` was
evicted, `2026-11-30 x` something else was removed. The file's size therefore tells a process whether another one
changed the folder, without clocks and without listing the folder.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from datetime import date
from pathlib import Path

from inference.kvcache.block import BlockHash, StoredEntry
from inference.kvcache.block_file import open_regular, write_file

_logger = logging.getLogger(__name__)
_COMPACT_ABOVE_BYTES = 1 << 18
_EVICTIONS_KEPT = 2000


class ChangeLog:
    """Not locked: the store's lock guards it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: int | None = None
        self._parsed_bytes = 0
        self._own_and_known_bytes: int | None = None
        self._bytes_written: dict[str, int] = {}
        self._evicted: deque[tuple[int, BlockHash]] = deque(maxlen=_EVICTIONS_KEPT)
        self._compact()

    def bytes_written_today(self) -> int:
        self._parse()
        return self._bytes_written.get(_today(), 0)

    def bytes_written_total(self) -> int:
        self._parse()
        return sum(self._bytes_written.values())

    def evicted_ends(self) -> dict[int, set[BlockHash]]:
        """Hashes at the end of entries evicted lately, by position."""
        self._parse()
        ends: dict[int, set[BlockHash]] = {}
        for end, prefix_hash in self._evicted:
            ends.setdefault(end, set()).add(prefix_hash)
        return ends

    def changed_by_others(self) -> bool:
        """Since the last mark_known, apart from what this process appended."""
        return self._own_and_known_bytes != self._size()

    def mark_known(self) -> None:
        """To be called before the folder is listed: a change in between is then seen twice, never missed."""
        self._own_and_known_bytes = self._size()

    def append_written(self, num_bytes: int) -> None:
        self._append(f"{_today()} +{num_bytes}\n")

    def append_evicted(self, entry: StoredEntry) -> None:
        self._append(f"{_today()} -{entry.end:07d}-{entry.hash}\n")

    def append_removed(self) -> None:
        self._append(f"{_today()} x\n")

    def _append(self, line: str) -> None:
        try:
            # Where a pipe has taken its place: an error, not a wait for a reader.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(self._path, flags, 0o600)
            try:
                written = os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            _logger.info("a change of the store is not in its log: %s", error)
            return
        if self._own_and_known_bytes is not None:
            self._own_and_known_bytes += written

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _parse(self) -> None:
        """Read what was appended since the last time, or all of it if the file is another one now."""
        try:
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._identity or status.st_size < self._parsed_bytes:
                    self._identity, self._parsed_bytes = status.st_ino, 0
                    self._bytes_written.clear()
                    self._evicted.clear()
                file.seek(self._parsed_bytes)
                complete, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return
        self._parsed_bytes += len(complete) + len(newline)
        for line in complete.decode("ascii", errors="replace").splitlines():
            self._parse_line(line)

    def _parse_line(self, line: str) -> None:
        day, _, change = line.partition(" ")
        sign, value = change[:1], change[1:]
        if sign == "+" and value.isdecimal():
            self._bytes_written[day] = self._bytes_written.get(day, 0) + int(value)
        elif sign == "-" and value[:7].isdecimal():
            self._evicted.append((int(value[:7]), BlockHash(value[8:])))

    def _compact(self) -> None:
        if self._size() <= _COMPACT_ABOVE_BYTES:
            return
        self._parse()
        lines = [f"{day} +{num_bytes}\n" for day, num_bytes in sorted(self._bytes_written.items())]
        lines += [f"{_today()} -{end:07d}-{prefix_hash}\n" for end, prefix_hash in self._evicted]
        try:
            write_file(self._path, "".join(lines).encode())
        except OSError as error:
            _logger.info("the store's log stays long: %s", error)


def _today() -> str:
    return date.today().isoformat()
