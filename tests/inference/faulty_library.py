"""llama.cpp with one decode call that ends as a fault ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inference.llama.context import Context


class FaultyLibrary:
    """The real library; results: what each decode call returned. The call number fail_at computes all its rows, so
    that they lie in the cache, and returns `code`; during: called when it begins."""

    def __init__(self, llama: Any, fail_at: int, code: int | None, during: Callable[[], None]) -> None:
        self._llama, self._fail_at, self._code, self._during = llama, fail_at, code, during
        self.results: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llama, name)

    def llama_decode(self, handle: Any, batch: Any) -> int:
        is_the_one = len(self.results) + 1 == self._fail_at
        if is_the_one:
            self._during()
        result = self._llama.llama_decode(handle, batch)
        self.results.append(self._code if is_the_one and self._code is not None else result)
        return self.results[-1]


@contextmanager
def faulty(
    context: Context, fail_at: int, code: int | None = None, during: Callable[[], None] = lambda: None
) -> Iterator[FaultyLibrary]:
    """code None: the call returns what the library says."""
    sound = context._llama
    context._llama = library = FaultyLibrary(sound, fail_at, code, during)  # type: ignore[assignment]
    try:
        yield library
    finally:
        context._llama = sound
