"""What the engine asks of the prefix store: match, restore, store. Files are written on a thread of their own."""

from __future__ import annotations

import logging
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inference.kvcache.checkpoint_file import StateBytes
from inference.kvcache.checkpoint_store import CheckpointStore, PrefixMatch
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import ReuseRule, TokenArray

_logger = logging.getLogger(__name__)
# States waiting for the disk. Each may be hundreds of megabytes; a disk that cannot follow loses the newest.
_MAX_WAITING_STATES = 2
_MAX_BUDGET_BYTES = 20 * 10**9


def default_budget_bytes(folder: Path) -> int:
    """A tenth of the free disk, at most 20 GB."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return min(_MAX_BUDGET_BYTES, shutil.disk_usage(existing).free // 10)


@dataclass(frozen=True, slots=True)
class _WaitingState:
    fingerprint: Fingerprint
    token_ids: TokenArray
    pos_min: int
    state: StateBytes
    rule: ReuseRule


class PrefixCache:
    """Whole-sequence checkpoints behind the interface that the engine keeps when blocks take their place."""

    def __init__(
        self,
        folder: Path,
        budget_bytes: int | None,
        on_notice: Callable[[str], None],
        on_stored: Callable[[], None] = lambda: None,
    ) -> None:
        """on_notice gets one line for the user when something could not be stored, on_stored is called when
        something was; both on the writer's thread.

        Raises OSError if the folder cannot be used at all.
        """
        self._store = CheckpointStore(
            folder, default_budget_bytes(folder) if budget_bytes is None else budget_bytes
        )
        self._on_notice = on_notice
        self._on_stored = on_stored
        self._last_notice: str | None = None
        self._waiting: queue.Queue[_WaitingState | None] = queue.Queue(_MAX_WAITING_STATES)
        self._writer = threading.Thread(target=self._write_waiting_states, name="prefix store", daemon=True)
        self._writer.start()

    @property
    def store_bytes(self) -> int:
        return self._store.store_bytes

    @property
    def budget_bytes(self) -> int:
        return self._store.budget_bytes

    @property
    def bytes_read(self) -> int:
        return self._store.bytes_read

    @property
    def bytes_written(self) -> int:
        return self._store.bytes_written

    def match_prefix(
        self, fingerprint: Fingerprint, token_ids: TokenArray, rule: ReuseRule, *, max_hit_length: int
    ) -> PrefixMatch | None:
        return self._store.match_prefix(fingerprint, token_ids, rule, max_hit_length=max_hit_length)

    @contextmanager
    def open_state(self, match: PrefixMatch) -> Iterator[StateBytes | None]:
        """The state to restore, verified; None is a miss."""
        with self._store.open_state(match.checkpoint) as state:
            yield state

    def reject(self, match: PrefixMatch) -> None:
        """The library refused this state although its checksum holds: it is of no use to anyone."""
        _logger.warning("the library refused %s", match.checkpoint.path.name)
        self._store.remove(match.checkpoint)

    def store(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        pos_min: int,
        state: StateBytes,
        rule: ReuseRule,
    ) -> None:
        """Hand a sequence's state over for writing; returns at once."""
        try:
            self._waiting.put_nowait(_WaitingState(fingerprint, token_ids, pos_min, state, rule))
        except queue.Full:
            self._notify("The disk cannot keep up: this turn was not stored and may be read again next time.")

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything handed over is on disk. False: it was not within timeout_s."""
        waiting = self._waiting
        with waiting.all_tasks_done:
            return waiting.all_tasks_done.wait_for(lambda: waiting.unfinished_tasks == 0, timeout_s)

    def _write_waiting_states(self) -> None:
        while True:
            waiting = self._waiting.get()
            if waiting is None:
                return
            try:
                self._write(waiting)
            except Exception:
                # The thread must outlive any one state.
                _logger.exception("a state could not be stored")
            del waiting
            self._waiting.task_done()

    def _write(self, waiting: _WaitingState) -> None:
        try:
            newest = self._store.write(waiting.fingerprint, waiting.token_ids, waiting.pos_min, waiting.state)
        except OSError as error:
            self._notify(
                f"This chat's memory could not be stored ({error.strerror or error}): the chat goes on, but it will "
                "be read again next time. Free some disk space or check the data folder."
            )
            return
        self._last_notice = None
        if not waiting.rule.recurrent and not waiting.rule.n_swa:
            self._store.remove_prefixes_of(newest)
        self._store.evict_to_budget()
        self._on_stored()

    def _notify(self, notice: str) -> None:
        _logger.warning("%s", notice)
        if notice != self._last_notice:
            self._last_notice = notice
            self._on_notice(notice)

    def close(self, timeout_s: float) -> None:
        """Let the writer finish what was handed over, for timeout_s at most; what is not written then is not stored."""
        if self.flush(timeout_s):
            self._waiting.put(None)
            self._writer.join(timeout_s)
