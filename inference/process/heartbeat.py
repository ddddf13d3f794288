"""The worker's sign of life, and of whether its inference thread gets on; from a thread of its own, none while idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil

from inference.activity import Activity
from inference.events import Heartbeat
from inference.process.parent_watch import wake_with_parent

INTERVAL_S = 1.0
# Fewer may be anybody's: this thread's own pages, a frame of a command.
_LEAST_FAULTS = 8
_LEAST_READ_BYTES = 2**16


def start_heartbeat(activity: Activity, emit: Callable[[Heartbeat], None]) -> None:
    threading.Thread(target=_beat, args=(activity, emit), name="heartbeat", daemon=True).start()


def _beat(activity: Activity, emit: Callable[[Heartbeat], None]) -> None:
    wake_with_parent()
    while True:
        activity.wait_until_busy()
        stuck_s, num_advances, disk = 0.0, activity.num_advances, DiskReads()
        before = time.monotonic()
        while activity.is_busy:
            time.sleep(INTERVAL_S)
            now = time.monotonic()
            if activity.num_advances != num_advances or disk.went_on():
                stuck_s, num_advances = 0.0, activity.num_advances
            else:
                # A computer that slept, or a process that was stopped, did not try meanwhile.
                stuck_s += min(now - before, 2 * INTERVAL_S)
            before = now
            emit(Heartbeat(stuck_s, activity.expected_s))


class DiskReads:
    """Whether this process is being given bytes from a disk: a slow step is then no hang (a large model that is mapped
    into memory is read by the first step that needs it, and again where memory is short)."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._faults, self._read_bytes = _major_faults(), self._count_read_bytes()

    def went_on(self) -> bool:
        """Since the last call."""
        faults, read_bytes = _major_faults(), self._count_read_bytes()
        went_on = faults - self._faults >= _LEAST_FAULTS or read_bytes - self._read_bytes >= _LEAST_READ_BYTES
        self._faults, self._read_bytes = faults, read_bytes
        return went_on

    def _count_read_bytes(self) -> int:
        """By this process so far; 0 where the system does not tell."""
        try:
            counters = self._process.io_counters()
        except (AttributeError, psutil.Error, OSError):  # macOS has none
            return 0
        return int(getattr(counters, "read_chars", counters.read_bytes))


def _major_faults() -> int:
    """Pages that had to be read; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
