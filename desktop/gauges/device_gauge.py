"""Where the model really runs, as read back after the load."""

from __future__ import annotations

from desktop.gauges.gauge import Gauge
from inference import Event, ModelInfo, ModelLoaded, ModelLoadFailed, WorkerExited


class DeviceGauge(Gauge):
    def __init__(self) -> None:
        super().__init__("device_gauge", "Where the model runs")

    def show_event(self, event: Event) -> None:
        match event:
            case ModelLoaded(info=info):
                self.say(device_words(info))
            case ModelLoadFailed() | WorkerExited():
                self.say("")


def device_words(info: ModelInfo) -> str:
    if info.layers_offloaded == 0:
        return f"CPU · {info.n_threads} {'thread' if info.n_threads == 1 else 'threads'}"
    return f"{info.layers_offloaded}/{info.n_layers} layers on {info.device_name}"
