"""The row of gauges in the status bar."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QWidget

from desktop.gauges.decode_rate_gauge import DecodeRateGauge
from desktop.gauges.device_gauge import DeviceGauge
from desktop.gauges.first_token_gauge import FirstTokenGauge
from desktop.gauges.gauge import Gauge
from desktop.gauges.kv_gauge import KVGauge
from desktop.gauges.phase_gauge import PhaseGauge
from desktop.gauges.store_gauge import StoreGauge
from inference import Event


class GaugeStrip(QWidget):
    """Phase at the left, figures at the right. Given the engine's events and those of the open chat's replies."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("gauge_strip")
        self.phase = PhaseGauge()
        self.decode_rate = DecodeRateGauge()
        self.first_token = FirstTokenGauge()
        self.kv = KVGauge()
        self.store = StoreGauge()
        self.device = DeviceGauge()
        self._gauges: tuple[Gauge, ...] = (
            self.phase,
            self.decode_rate,
            self.first_token,
            self.kv,
            self.store,
            self.device,
        )
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 12, 4)
        row.setSpacing(16)
        row.addWidget(self.phase)
        row.addStretch(1)
        for gauge in self._gauges[1:]:
            row.addWidget(gauge)

    def show_event(self, event: Event) -> None:
        for gauge in self._gauges:
            gauge.show_event(event)

    def forget_reply(self) -> None:
        for gauge in self._gauges:
            gauge.forget_reply()
