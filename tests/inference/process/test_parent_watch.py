"""The kernel ends an orphan in which no Python runs any more."""

import signal
import subprocess
import sys

import psutil
import pytest

from inference.process.parent_watch import ORPHAN_LIFE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells orphans on Linux only")

# The sleep holds the interpreter lock, as a call does that hangs in an extension module. SIGHUP is 1: one second.
ORPHAN = """
import ctypes, os, sys, threading
from inference.process.parent_watch import end_with_parent, wake_with_parent
end_with_parent(int(sys.argv[1]), 1)
ready = threading.Event()
threading.Thread(target=lambda: (wake_with_parent(), ready.set(), threading.Event().wait()), daemon=True).start()
ready.wait()
print(os.getpid(), flush=True)
ctypes.PyDLL(None).sleep(600)
"""
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {ORPHAN!r}, str(os.getpid())])
time.sleep(600)
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_orphan_ends_also_inside_a_call_that_never_returns_and_when_it_is_stopped(
    is_stopped: bool,
) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    orphan = psutil.Process(int(parent.stdout.readline()))
    if is_stopped:
        orphan.suspend()
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([orphan], 20)
    if alive:
        orphan.kill()
    assert not alive


def test_a_child_of_a_parent_that_is_gone_already_does_not_begin() -> None:
    code = "from inference.process.parent_watch import end_with_parent; end_with_parent(1); print('went on')"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b""


def test_the_time_is_a_signal_whose_default_nobody_needs() -> None:
    assert signal.Signals(ORPHAN_LIFE_S) is signal.SIGUSR1
