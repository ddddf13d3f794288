"""What every gauge of the status bar is: a short text, fed by the engine's events only."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from inference import Event


class Gauge(QLabel):
    """Hidden while it has nothing to say, so the strip holds figures and no dashes."""

    def __init__(self, name: str, tool_tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setToolTip(tool_tip)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        self.hide()

    def show_event(self, event: Event) -> None:
        """Take what concerns this gauge from an event; ignore the rest."""
        raise NotImplementedError

    def forget_reply(self) -> None:
        """Another chat is open now: drop what was said about a single reply."""

    def say(self, text: str) -> None:
        self.setText(text)
        self.setVisible(bool(text))
