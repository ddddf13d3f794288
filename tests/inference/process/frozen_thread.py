"""Stops one thread of a process, as a call that never returns would; the others go on. Linux only.

python frozen_thread.py PID    freezes the busiest thread of PID, prints its id, and waits for its end
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import psutil

_PTRACE_SEIZE, _PTRACE_INTERRUPT = 0x4206, 0x4207
_WALL = 0x40000000


def main(pid: int) -> None:
    process = psutil.Process(pid)
    before = {thread.id: thread.user_time for thread in process.threads()}
    time.sleep(0.3)
    busiest = max(process.threads(), key=lambda thread: thread.user_time - before.get(thread.id, 0.0))
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (_PTRACE_SEIZE, _PTRACE_INTERRUPT):
        if ptrace(request, busiest.id, None, None) != 0:
            print(f"refused: {os.strerror(ctypes.get_errno())}", flush=True)
            return
    os.waitpid(busiest.id, _WALL)
    print(busiest.id, flush=True)
    # A traced thread that is killed stays until its tracer has seen it.
    os.waitpid(busiest.id, _WALL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
