"""Prompts are built beside the inference thread: a chat template may take seconds, and other chats are written meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class PromptThread:
    """One thread, which builds in the order it was asked. All but is_busy and close is the inference thread's.

    What is built with a model must be taken before the model is freed: see is_busy.
    """

    def __init__(self, on_built: Callable[[], None]) -> None:
        """on_built: called on any thread whenever something is ready or was cancelled."""
        self._on_built = on_built
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        self._lock = threading.Lock()
        self._num_unfinished = 0
        self._awaited: deque[tuple[Future[Any], Callable[[Future[Any]], None]]] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether anything is being built, waits for it, or was not taken yet."""
        return self._num_unfinished > 0 or bool(self._awaited)

    def build(self, make: Callable[[], T]) -> Future[T]:
        """Its result is make()'s; cancel() of one that did not begin leaves it out."""
        with self._lock:
            self._num_unfinished += 1
        future = self._executor.submit(make)
        future.add_done_callback(self._built)
        return future

    def build_for(self, make: Callable[[], T], take: Callable[[Future[T]], None]) -> None:
        """take() is called by take_built(), in the order of these calls."""
        self._awaited.append((self.build(make), take))

    def take_built(self) -> None:
        while self._awaited and self._awaited[0][0].done():
            future, take = self._awaited[0]
            # It counts as not taken until it is.
            try:
                take(future)
            finally:
                self._awaited.popleft()

    def _built(self, _future: Future[Any]) -> None:
        with self._lock:
            self._num_unfinished -= 1
        self._on_built()

    def close(self, *, wait: bool = False) -> None:
        """Begin nothing more. wait: until what is being built is done; a process that ends need not."""
        self._executor.shutdown(wait=wait, cancel_futures=True)
