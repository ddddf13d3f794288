"""Run a command with its output in a log file; a failure names the log and the likely remedy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from installers.errors import SetUpError

# The first pattern found in the failed command's output decides the advice.
_REMEDIES = (
    (r"No space left on device", "The disk is full: free about 1 GB and run the same command again."),
    (
        r"Killed signal|Killed\b|out of memory|bad_alloc",
        "Memory ran out: close other programs, or build on one core: EVERWARM_BUILD_JOBS=1 make run",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "A download is not the file that was pinned: the package index or a proxy altered it. Try another network.",
    ),
    (
        r"Max retries|NewConnectionError|NameResolution|Network is unreachable|timed out|ProxyError|SSLError"
        r"|Could not find a version",
        "The Python package index did not answer as expected: check the network and pip's index and proxy "
        "settings (pip config list), then run the same command again.",
    ),
    (r"Permission denied", "A folder may not be written to: the log's last lines name it."),
)
_TAIL_BYTES = 64_000


def run_logged(
    command: Sequence[str],
    log: Path,
    *,
    doing: str,
    remedy: str = "The log's last lines say why.",
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Append the command's output to `log`. Raise SetUpError("<doing> failed …") unless it exits with 0.

    `env` replaces this process's environment; `on_line` sees each line of output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as output:
        start = output.tell()
        output.write(f"\n$ {' '.join(command)}\n")
        output.flush()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=env,
            )
        except OSError as error:
            raise SetUpError(
                f"{doing} failed: {command[0]} could not be started ({error.strerror})."
            ) from error
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                output.write(line)
                if on_line is not None:
                    on_line(line)
    if process.returncode != 0:
        raise SetUpError(f"{doing} failed. {_remedy_from(log, start) or remedy}\nLog: {log}")


def _remedy_from(log: Path, start: int) -> str | None:
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL_BYTES))
        tail = file.read().decode("utf-8", errors="replace")
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, tail)), None)
