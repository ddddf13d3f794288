"""What the engine does now, in words."""

from __future__ import annotations

from pathlib import Path

from desktop.gauges.gauge import Gauge
from desktop.quantities import format_percent
from inference import (
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    Phase,
    PhaseChanged,
    PrefillProgress,
    RequestFailed,
    RequestFinished,
    WorkerExited,
)

PHASE_WORDS = {
    Phase.QUEUED: "Waiting for the model",
    Phase.LOADING: "Loading the model",
    Phase.RESTORING: "Restoring from disk",
    Phase.PREFILL: "Reading your message (prefill)",
    Phase.DECODE: "Writing (decode)",
}


class PhaseGauge(Gauge):
    """Falls back to what is true of the engine as a whole when no reply of the open chat is running."""

    def __init__(self) -> None:
        super().__init__("phase_gauge", "What the engine does now")
        self._engine_words = ""

    def show_event(self, event: Event) -> None:
        match event:
            case PhaseChanged(phase=phase):
                self.say(PHASE_WORDS[phase])
            case PrefillProgress(num_prefilled_tokens=done, num_tokens_to_prefill=total):
                share = format_percent(done / total if total else 1.0)
                self.say(f"{PHASE_WORDS[Phase.PREFILL]} {share}")
            case RequestFinished() | RequestFailed():
                self.say(self._engine_words)
            case ModelLoadProgress(config=config, fraction=fraction):
                self._say_of_engine(f"Loading {Path(config.path).stem} {format_percent(fraction)}")
            case ModelLoaded():
                self._say_of_engine("Ready")
            case ModelLoadFailed():
                self._say_of_engine("No model loaded")
            case WorkerExited():
                self._say_of_engine("The engine stopped; the next message starts it again")

    def forget_reply(self) -> None:
        self.say(self._engine_words)

    def _say_of_engine(self, words: str) -> None:
        self._engine_words = words
        self.say(words)
