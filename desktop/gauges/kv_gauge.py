"""KV cache in memory: used of allocated."""

from __future__ import annotations

from desktop.gauges.gauge import Gauge
from desktop.quantities import format_share_of_bytes
from inference import EngineStats, Event, ModelLoaded, ModelLoadFailed, RequestFinished, WorkerExited


class KVGauge(Gauge):
    def __init__(self) -> None:
        super().__init__(
            "kv_gauge", "KV cache: what the model remembers of the chats in memory, of what is allocated"
        )

    def show_event(self, event: Event) -> None:
        match event:
            case EngineStats(kv=kv) | RequestFinished(kv=kv):
                self.say(f"KV {format_share_of_bytes(kv.used_bytes, kv.allocated_bytes)}")
            case ModelLoaded(info=info):
                self.say(f"KV {format_share_of_bytes(0, info.kv_allocated_bytes)}")
            case ModelLoadFailed() | WorkerExited():
                self.say("")
