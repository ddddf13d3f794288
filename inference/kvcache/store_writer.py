"""The thread that writes: it takes jobs in their order, holds a bounded number of bytes, and outlives any failure."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_logger = logging.getLogger(__name__)

# Does its work and tells whether something was stored. May raise OSError.
Job = Callable[[], bool]

DISK_TOO_SLOW = "The disk cannot keep up: part of this chat was not stored and may be read again next time."


def disk_refused(error: OSError) -> str:
    return (
        f"This chat's memory could not be stored ({error.strerror or error}): the chat goes on, but it will be read "
        "again next time. Free some disk space or check the data folder."
    )


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: Job
    num_bytes: int
    abandon: Callable[[], None]


class StoreWriter:
    """on_notice gets one line for the user when something could not be stored, not repeated until something was;
    on_stored is called when the jobs at hand are done and something was stored. Both on the writer's thread, a
    notice of a slow disk on the submitter's."""

    def __init__(
        self, on_notice: Callable[[str], None], on_stored: Callable[[], None], max_waiting_bytes: int
    ) -> None:
        self._on_notice = on_notice
        self._on_stored = on_stored
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._is_working = False
        self._is_closed = False
        self._stored_something = False
        self._last_notice: str | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="store writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, num_bytes: int = 0, abandon: Callable[[], None] = lambda: None) -> bool:
        """False: too many bytes wait already, or the writer is closed. A job that holds nothing is always taken.

        abandon is called instead of the job where it is dropped before it began.
        """
        with self._changed:
            if self._is_closed:
                return False
            is_too_much = (
                num_bytes
                and self._waiting_bytes
                and self._waiting_bytes + num_bytes > self._max_waiting_bytes
            )
            if not is_too_much:
                self._waiting.append(_Waiting(job, num_bytes, abandon))
                self._waiting_bytes += num_bytes
                self._changed.notify_all()
                return True
        self.notify(DISK_TOO_SLOW)
        return False

    def notify(self, notice: str) -> None:
        _logger.warning("%s", notice)
        with self._changed:
            is_known = notice == self._last_notice
            self._last_notice = notice
        if not is_known:
            self._on_notice(notice)

    def flush(self, timeout_s: float) -> bool:
        """Wait until every job handed over is done. False: not within timeout_s."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def discard(self) -> None:
        """Drop the jobs that wait; the one at work goes on."""
        with self._changed:
            dropped = list(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._changed.notify_all()
        for waiting in dropped:
            waiting.abandon()

    def close(self, timeout_s: float) -> None:
        """Let the jobs handed over finish, for timeout_s at most; those not begun then are dropped."""
        self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            is_idle = self._is_idle()
        self.discard()
        if is_idle:
            self._thread.join()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_working

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                waiting = self._waiting.popleft()
                self._is_working = True
            self._do(waiting.job)
            with self._changed:
                self._waiting_bytes = max(0, self._waiting_bytes - waiting.num_bytes)
                is_burst_over = not self._waiting and self._stored_something
            if is_burst_over:
                self._stored_something = False
                self._call_on_stored()
            del waiting
            with self._changed:
                self._is_working = False
                self._changed.notify_all()

    def _do(self, job: Job) -> None:
        try:
            stored = job()
        except OSError as error:
            self.notify(disk_refused(error))
        except Exception:
            # The thread must outlive any one job.
            _logger.exception("a part of a chat's memory could not be stored")
        else:
            if stored:
                self._stored_something = True
                with self._changed:
                    self._last_notice = None

    def _call_on_stored(self) -> None:
        try:
            self._on_stored()
        except Exception:
            _logger.exception("the news of what was stored was not taken")
