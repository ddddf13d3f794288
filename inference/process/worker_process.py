"""One worker process with its pipes: a thread reads events, a thread writes commands, nobody waits for either."""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, BinaryIO, cast

from inference.events import Event
from inference.process.wire import BrokenFrame, Command, encode_frame, read_frame
from inference.process.worker_config import WorkerConfig
from inference.process.worker_death import WorkerDeath, count_memory_kills, death_of

_logger = logging.getLogger(__name__)
_MAX_LOG_BYTES = 5 * 2**20
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
WORKER_MODULE = "inference.process.worker"


# libgomp lets threads that wait at a barrier spin for milliseconds, and takes the processor from whoever hands the
# token on. Seen with 2 threads on 2 cores, one step at depth 4,000, alone after a pause and beside one busy program:
# 19 ms and 31 to 128 ms as libgomp does by itself; 16 and 28 to 140 ms with a count of 10,000; 16.5 and 45 ms with
# 1,000; with 100 barriers sleep in every step, and decode takes twice as long.
_GOMP_SPIN_COUNT = "1000"
# The KV cache in huge pages where the system leaves that to programs: rows of all layers lie far apart, and a restore
# writes to all of them (4,000 tokens: 11.3 instead of 11.7 ms).
_MALLOC_TUNABLES = "glibc.malloc.hugetlb=1"


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker runs in, made from this process's environment."""
    path = filter(None, [str(_PACKAGE_ROOT), environment.get("PYTHONPATH")])
    made = {
        # What the user has set is wanted.
        "GOMP_SPINCOUNT": _GOMP_SPIN_COUNT,
        "GLIBC_TUNABLES": _MALLOC_TUNABLES,
        **environment,
        # The worker imports the very packages that this process runs.
        "PYTHONPATH": os.pathsep.join(path),
        # A native abort ends at once: a debugger started for a backtrace may hang instead.
        "GGML_NO_BACKTRACE": "1",
    }
    # It changes what KV rows mean, and no fingerprint knows of it.
    made.pop("LLAMA_ATTN_ROT_DISABLE", None)
    return made


class WorkerProcess:
    """on_event and on_exit(death) are called on the reader thread; death is None for an exit with code 0.

    The worker ends with the thread that made this, so that has to be one that lives as long as the program.
    """

    def __init__(
        self,
        config: WorkerConfig,
        on_event: Callable[[Event], None],
        on_exit: Callable[[WorkerDeath | None], None],
    ) -> None:
        """Raises OSError if the process cannot be started."""
        self._on_event, self._on_exit = on_event, on_exit
        self._death: WorkerDeath | None = None
        self.note_memory_kills()
        log = _open_log(config.log_file)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER_MODULE, config.to_json(), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log or subprocess.DEVNULL,
                env=worker_environment(os.environ),
            )
        finally:
            if log is not None:
                log.close()
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_commands, name="worker commands", daemon=True)
        self._reader = threading.Thread(target=self._read_events, name="worker events", daemon=True)
        self._writer.start()
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        self._commands.put(encode_frame(command))

    def end_of_commands(self) -> None:
        self._commands.put(None)

    def note_memory_kills(self) -> None:
        """What the system ends for want of memory from now on may be this worker."""
        self._memory_kills = count_memory_kills()

    def kill(self, death: WorkerDeath | None = None) -> None:
        """death: what is told of it."""
        if self._death is None:
            self._death = death
        self._process.kill()

    def _write_commands(self) -> None:
        stream = cast(BinaryIO, self._process.stdin)
        try:
            while (frame := self._commands.get()) is not None:
                stream.write(frame)
                stream.flush()
            stream.close()
        except OSError:
            # The worker died; the reader sees the end of its stream and tells.
            _logger.info("worker %d takes no more commands", self.pid)

    def _read_events(self) -> None:
        stream = cast(BinaryIO, self._process.stdout)
        try:
            while (frame := read_frame(stream)) is not None:
                self._on_event(cast(Event, frame))
        except BrokenFrame:
            _logger.exception("worker %d sent what is no event", self.pid)
            self._process.kill()
        self._commands.put(None)
        return_code = self._process.wait()
        memory_ran_out = count_memory_kills() > self._memory_kills
        self._on_exit(self._death or death_of(return_code, memory_ran_out=memory_ran_out))


def _open_log(path: Path | None) -> IO[bytes] | None:
    """The log opened for appending, an old large one put aside; None where it cannot be written."""
    if path is None:
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    except OSError as error:
        _logger.warning("no worker log in %s: %s", path, error)
        return None
