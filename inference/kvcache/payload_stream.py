"""Payloads of several entries in turn: while one is used, the next is read and verified on a thread of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

from inference.kvcache.block import StoredEntry
from inference.kvcache.block_file import StateBytes
from inference.kvcache.store_index import StoreIndex

_Opened = tuple[AbstractContextManager[StateBytes | None], StateBytes | None]


class PayloadReader:
    """For one thread; its own is started by the first use and waits between two."""

    def __init__(self, index: StoreIndex) -> None:
        self._index = index
        # Both sides are mostly in calls that hold no interpreter lock: reading, hashing, and the library's copying.
        self._pool = ThreadPoolExecutor(1, "store reader")

    def each(self, entries: Sequence[StoredEntry]) -> Generator[StateBytes | None]:
        """As StoreIndex.open_payload gives them, each valid until the next is asked for. To be closed where it is not
        used up."""
        if len(entries) < 2:
            for entry in entries:
                with self._index.open_payload(entry) as payload:
                    yield payload
            return
        following = iter(entries)
        ahead: deque[Future[_Opened]] = deque()

        def read_next() -> None:
            if (entry := next(following, None)) is not None:
                ahead.append(self._pool.submit(self._open, entry))

        read_next()
        try:
            while ahead:
                opened, payload = ahead.popleft().result()
                read_next()
                try:
                    yield payload
                finally:
                    opened.__exit__(None, None, None)
        finally:
            while ahead:
                ahead.popleft().result()[0].__exit__(None, None, None)

    def _open(self, entry: StoredEntry) -> _Opened:
        opened = self._index.open_payload(entry)
        return opened, opened.__enter__()

    def close(self) -> None:
        self._pool.shutdown(wait=False)
