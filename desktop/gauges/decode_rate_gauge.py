"""Tokens a second while a reply is written: over the last second, then over the whole reply."""

from __future__ import annotations

from collections import deque

from desktop.gauges.gauge import Gauge
from desktop.quantities import format_rate
from inference import Event, RequestFailed, RequestFinished, TokenDelta

WINDOW_S = 1.0


class DecodeRateGauge(Gauge):
    """The worker's own clock: readings of decode_s and num_generation_tokens, no clock of the window's."""

    def __init__(self) -> None:
        super().__init__(
            "decode_rate_gauge", "Tokens written a second (decode); the first token is not counted"
        )
        self._readings: deque[tuple[float, int]] = deque()
        self._request_id: str | None = None

    def show_event(self, event: Event) -> None:
        match event:
            case TokenDelta():
                self._show_delta(event)
            case RequestFinished(decode_tokens_per_second=rate):
                self._forget_readings()
                self.say("" if rate is None else f"decode {format_rate(rate)}")
            case RequestFailed():
                self._forget_readings()

    def forget_reply(self) -> None:
        self._forget_readings()
        self.say("")

    def _show_delta(self, delta: TokenDelta) -> None:
        if delta.request_id != self._request_id:
            self._forget_readings()
            self._request_id = delta.request_id
        self._readings.append((delta.decode_s, delta.num_generation_tokens))
        while len(self._readings) > 2 and delta.decode_s - self._readings[1][0] >= WINDOW_S:
            self._readings.popleft()
        since_s, since_tokens = self._readings[0]
        if len(self._readings) == 1:
            # decode_s counts from the first token, which therefore took none of it.
            since_s, since_tokens = 0.0, 1
        if delta.decode_s > since_s:
            self.say(
                f"decode {format_rate((delta.num_generation_tokens - since_tokens) / (delta.decode_s - since_s))}"
            )

    def _forget_readings(self) -> None:
        self._readings.clear()
        self._request_id = None
