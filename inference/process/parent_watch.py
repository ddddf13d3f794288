"""The end of a process whose parent is gone, whatever its threads are in: by the kernel, where that can be had (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
ORPHAN_LIFE_S = 10
"""A process whose parent has died lives at most this long, so that it can end in order."""


def end_with_parent(parent_pid: int, orphan_life_s: int = ORPHAN_LIFE_S) -> None:
    """Call on the main thread, before it starts to wait for anything. Elsewhere than on Linux: nothing.

    The end of the commands tells an orphan too, but a thread that hangs in a call and holds the interpreter lock would
    keep everyone from seeing it. So the kernel sends a signal whose handler is libc's own alarm(): no Python runs, and
    when the time is over, SIGALRM ends the process. A handler is given the signal's number, so that is the time: 10 s is
    SIGUSR1.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(orphan_life_s, ctypes.cast(libc.alarm, ctypes.c_void_p))
    libc.prctl(_PR_SET_PDEATHSIG, orphan_life_s, 0, 0, 0)
    # The parent may have died before the kernel was asked.
    if os.getppid() != parent_pid:
        os._exit(0)


def wake_with_parent() -> None:
    """Call on any other thread that lives as long as the process: one that was stopped (SIGSTOP) goes on when its parent
    dies, and so gets to its end. Each thread has one such signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
