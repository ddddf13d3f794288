"""Time to first token of the open chat's latest reply."""

from __future__ import annotations

from desktop.gauges.gauge import Gauge
from desktop.quantities import format_seconds
from inference import Event, RequestFinished, TokenDelta


class FirstTokenGauge(Gauge):
    def __init__(self) -> None:
        super().__init__(
            "first_token_gauge",
            "Time to first token (TTFT), without waiting for other chats or for the model to load",
        )

    def show_event(self, event: Event) -> None:
        match event:
            case TokenDelta(ttft_s=ttft_s):
                self.say(f"first token {format_seconds(ttft_s)}")
            case RequestFinished(timings=timings):
                self.say("" if timings.ttft_s is None else f"first token {format_seconds(timings.ttft_s)}")

    def forget_reply(self) -> None:
        self.say("")
