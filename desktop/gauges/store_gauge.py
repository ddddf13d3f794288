"""KV store: what is kept on disk so that no chat is read twice."""

from __future__ import annotations

from desktop.gauges.gauge import Gauge
from desktop.quantities import format_bytes, format_share_of_bytes
from inference import EngineStats, Event, RequestFinished

TOOL_TIP = "KV store: chats already read, kept on disk, of the room given to it"


class StoreGauge(Gauge):
    def __init__(self) -> None:
        super().__init__("store_gauge", TOOL_TIP)

    def show_event(self, event: Event) -> None:
        match event:
            case EngineStats(kv=kv) | RequestFinished(kv=kv):
                self.say(f"store {format_share_of_bytes(kv.store_bytes, kv.store_budget_bytes)}")
                written, read = format_bytes(kv.bytes_written), format_bytes(kv.bytes_read)
                today, in_all = format_bytes(kv.bytes_written_today), format_bytes(kv.bytes_written_total)
                self.setToolTip(
                    f"{TOOL_TIP}\nWritten to disk: {today} today, {in_all} in all"
                    f"\nSince the engine started: {written} written, {read} read"
                )
