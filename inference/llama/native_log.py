"""The native library's log lines: written to Python's log, and kept while something wants to read them.

Some facts are told by the library in its log only (layers really offloaded, bytes really allocated for the
KV cache, why a load failed).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from types import ModuleType

_logger = logging.getLogger("native")
# ggml_log_level: none, debug, info, warn, error, cont (continues the line before).
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUED = 5

_listeners: list[list[str]] = []
_keep_alive: list[object] = []
_partial_line = ""
_partial_level = logging.INFO


def install_native_log(llama: ModuleType) -> None:
    """Route the library's log here; called once, before anything else is asked of the library."""

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def on_log(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
        global _partial_line, _partial_level
        if level != _CONTINUED:
            _partial_level = _LEVELS.get(level, logging.INFO)
        _partial_line += text.decode("utf-8", "replace")
        *lines, _partial_line = _partial_line.split("\n")
        for line in lines:
            _logger.log(_partial_level, "%s", line)
            for kept in _listeners:
                kept.append(line)

    _keep_alive.append(on_log)
    llama.llama_log_set(on_log, None)


@contextlib.contextmanager
def captured_native_log() -> Iterator[list[str]]:
    """The lines that the library logs inside the block."""
    lines: list[str] = []
    _listeners.append(lines)
    try:
        yield lines
    finally:
        # By identity: two captures may hold equal lines.
        _listeners[:] = [kept for kept in _listeners if kept is not lines]
