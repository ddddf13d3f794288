"""Whether a worker that owes an answer is still at it. Counts time itself, so that a suspended computer hangs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from inference.events import Heartbeat
from inference.request import RequestId

TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. A loaded computer is slow at anything, so these are many.

    start_s: until a new worker says anything. silence_s: between two signs of life. stuck_s: without any progress of the
    inference thread; a step may take step_factor times what the model's steps took so far, if that is more.
    stop_s: until a stop that has no effect is told.
    """

    start_s: float = 120.0
    silence_s: float = 30.0
    stuck_s: float = 120.0
    step_factor: float = 20.0
    stop_s: float = 5.0


class Watchdog:
    """For one worker. tick() about once in TICK_S while an answer is due; heard() for every event."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._last_tick: float | None = None
        self._has_spoken = False
        self._silent_s = 0.0
        self._heartbeat = Heartbeat(0.0, 0.0)
        self._stops: dict[RequestId, float] = {}

    def begin(self) -> None:
        """An answer is due from now on; while none was, silence meant nothing."""
        self._last_tick = None
        self._silent_s = 0.0
        self._heartbeat = Heartbeat(0.0, 0.0)

    def heard(self, heartbeat: Heartbeat | None = None) -> None:
        """Any event; a heartbeat also tells how long nothing has got on."""
        self._has_spoken = True
        self._silent_s = 0.0
        if heartbeat is not None:
            self._heartbeat = heartbeat

    def stop_asked(self, request_id: RequestId) -> None:
        self._stops.setdefault(request_id, 0.0)

    def ended(self, request_id: RequestId) -> None:
        self._stops.pop(request_id, None)

    def tick(self, now: float) -> float | None:
        """Seconds for which the worker has been without any progress if that is too long, else None.

        now: any clock that does not go back. Of a longer time since the last tick only two ticks count: this process did
        not run either.
        """
        passed_s = 0.0 if self._last_tick is None else min(now - self._last_tick, 2 * TICK_S)
        self._last_tick = now
        self._silent_s += passed_s
        for request_id in self._stops:
            self._stops[request_id] += passed_s
        if self._silent_s > (self._patience.silence_s if self._has_spoken else self._patience.start_s):
            return self._silent_s
        stuck_s = self._heartbeat.stuck_s
        if stuck_s > max(self._patience.stuck_s, self._patience.step_factor * self._heartbeat.expected_s):
            return stuck_s
        return None

    def take_unanswered_stops(self) -> tuple[RequestId, ...]:
        """Requests that should have stopped by now; each is told once."""
        late = tuple(
            request_id for request_id, passed_s in self._stops.items() if passed_s > self._patience.stop_s
        )
        for request_id in late:
            del self._stops[request_id]
        return late
