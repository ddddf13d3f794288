"""Memory to read files into, used again: fresh memory costs a page fault for every 4 KiB, a third of a warm read."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

# One is read into while another is used.
_MAX_KEPT = 2
# Larger ones are rare (whole sequences), and too much to hold on to.
_MAX_KEPT_BYTES = 64 << 20


class ReadBuffers:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[npt.NDArray[np.uint8]] = []

    def take(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """At least num_bytes, of any content; nobody else's until it is given back."""
        with self._lock:
            for number, buffer in enumerate(self._kept):
                if buffer.size >= num_bytes:
                    return self._kept.pop(number)
        return np.empty(num_bytes, dtype=np.uint8)

    def give_back(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Views on it are no longer valid."""
        if buffer.size > _MAX_KEPT_BYTES:
            return
        with self._lock:
            self._kept.append(buffer)
            # The largest serve most.
            self._kept.sort(key=lambda kept: kept.size)
            del self._kept[:-_MAX_KEPT]
