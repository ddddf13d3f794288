"""What the inference thread is at, for those who watch whether it gets on."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from inference.llama.context import Context

# Steps are judged by the slowest of these.
_REMEMBERED_STEPS = 16
# Below this many tokens a step costs what the weights cost to read, whatever their number.
_FEW_TOKENS = 16
# What the slowest computer worth using does, for a model that no step was measured of yet.
_LEAST_FLOP_PER_S = 5e9
_LEAST_READ_BYTES_PER_S = 50e6


class StepTimes:
    """How long a step of one model should take, by its own last ones."""

    def __init__(self, num_params: int, size_bytes: int) -> None:
        self._num_params, self._size_bytes = num_params, size_bytes
        # Seconds a step of few tokens, and seconds a token of a step of many.
        self._short: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._long: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        # Of these the slowest; plain numbers, since another thread reads them.
        self._short_s: float | None = None
        self._s_per_token: float | None = None

    def observe(self, num_tokens: int, seconds: float) -> None:
        if 0 < num_tokens <= _FEW_TOKENS:
            self._short.append(seconds)
            self._short_s = max(self._short)
        elif num_tokens:
            self._long.append(seconds / num_tokens)
            self._s_per_token = max(self._long)

    def expected_s(self, num_tokens: int) -> float:
        """Seconds, rather too many than too few."""
        if not num_tokens:
            return 0.0
        short_s, s_per_token = self._short_s, self._s_per_token
        if num_tokens <= _FEW_TOKENS and short_s is not None:
            return short_s
        if s_per_token is not None:
            return s_per_token * num_tokens
        # The first step reads the weights from the disk, unless they are cached.
        reading_s = 0.0 if short_s is not None else self._size_bytes / _LEAST_READ_BYTES_PER_S
        return reading_s + 2 * self._num_params * num_tokens / _LEAST_FLOP_PER_S


class Activity:
    """Written by the inference thread, read by any other. Busy from the start, until it rests for the first time.

    num_advances: grows whenever the thread got on: with each step, each item taken up, each report of a load.
    """

    def __init__(self) -> None:
        self.num_advances = 0
        self._busy = threading.Event()
        self._busy.set()
        self._context: Context | None = None
        self._times: StepTimes | None = None
        self._decoded_before = 0

    def advance(self) -> None:
        self.num_advances += 1

    def rest(self) -> None:
        self._busy.clear()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """While the thread waits for something to do."""
        self.rest()
        try:
            yield
        finally:
            self.advance()
            self._busy.set()

    @contextmanager
    def step(self, context: Context) -> Iterator[None]:
        """One step of the scheduler, which decodes at most one batch in this context."""
        self.advance()
        if self._context is not context:
            self._times = StepTimes(context.model.num_params, context.model.size_bytes)
        self._decoded_before, self._context = context.num_decoded_tokens, context
        started = time.monotonic()
        try:
            yield
        finally:
            assert self._times is not None
            self._times.observe(context.num_decoded_tokens - self._decoded_before, time.monotonic() - started)
            # A step that is over expects nothing of what comes next.
            self._decoded_before = context.num_decoded_tokens
            self.advance()

    @property
    def is_busy(self) -> bool:
        return self._busy.is_set()

    def wait_until_busy(self) -> None:
        self._busy.wait()

    @property
    def expected_s(self) -> float:
        """Seconds that the step which is under way should take; 0.0: nothing is known of it, or it decodes nothing."""
        context, times = self._context, self._times
        if context is None or times is None:
            return 0.0
        return times.expected_s(context.num_decoded_tokens - self._decoded_before)
