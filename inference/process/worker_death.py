"""Why a worker process ended, in words, and what to do about it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from inference.model_config import ModelConfig, ModelInfo
from inference.remedies import remedies

HANG = "hang"
ENDED = "ended on request"
OUT_OF_MEMORY = "out of memory"
NOBODYS_FAULT = (ENDED, "SIGTERM")
"""Somebody wanted the process to end."""
_MEANINGS = {
    "SIGSEGV": "a fault in the model library or in a driver",
    "SIGABRT": "the model library or a driver gave up",
    "SIGFPE": "a fault in the model library or in a driver",
    "SIGILL": "the model library uses an instruction that this processor does not have",
    "SIGBUS": "the model file could not be read any further, or memory ran out",
    "SIGKILL": "it was killed",
    "SIGTERM": "it was told to end",
    OUT_OF_MEMORY: "the computer's memory ran out, and the system ended it",
}


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """cause: a signal's name, "exit code N", or one of HANG, ENDED and OUT_OF_MEMORY. stuck_s: of a hang, without any
    progress before it was ended."""

    cause: str
    stuck_s: float = 0.0

    def while_loading(self, config: ModelConfig) -> str:
        """One line for whoever waited for the model."""
        return f"{self._what()} while it loaded {Path(config.path).name}{self._advice(config, None, 'try ')}"

    def while_replying(self, config: ModelConfig | None, info: ModelInfo | None) -> str:
        """One line for whoever waited for a reply. info: of the model that was loaded."""
        kept = "What was written so far is kept; the next message starts it again"
        advice = "" if config is None else self._advice(config, info, "if it happens again, try ")
        return f"{self._what()}. {kept}{advice}"

    def _what(self) -> str:
        if self.cause == HANG:
            return f"the engine hung (no progress for {self.stuck_s:.0f} s) and was ended"
        if self.cause == ENDED:
            return "the engine was ended because it did not answer"
        meaning = _MEANINGS.get(self.cause)
        return f"the engine stopped ({self.cause}{f': {meaning}' if meaning else ''})"

    def _advice(self, config: ModelConfig, info: ModelInfo | None, lead: str) -> str:
        if self.cause == "SIGILL":
            return (
                ". Build the library for this processor: remove ~/.cache/everwarm and type `make run` again"
            )
        if self.cause == "SIGBUS":
            return f"; {lead}another model, or download this one again"
        if self.cause in NOBODYS_FAULT:
            return ""
        uses_gpu = None if info is None else info.layers_offloaded > 0
        n_ctx = config.n_ctx if info is None else info.n_ctx
        takes_memory = self.cause in (OUT_OF_MEMORY, "SIGKILL", "SIGABRT", "SIGSEGV")
        return f"; {lead}{remedies(n_ctx, config.n_gpu_layers, takes_memory=takes_memory, uses_gpu=uses_gpu)}"


def death_of(return_code: int, *, memory_ran_out: bool) -> WorkerDeath | None:
    """None: it ended as it should. memory_ran_out: the system has ended some process for want of memory lately."""
    if return_code == 0:
        return None
    if return_code > 0:
        return WorkerDeath(f"exit code {return_code}")
    try:
        cause = signal.Signals(-return_code).name
    except ValueError:
        cause = f"signal {-return_code}"
    return WorkerDeath(OUT_OF_MEMORY if cause == "SIGKILL" and memory_ran_out else cause)


def count_memory_kills() -> int:
    """Processes that this system has ended for want of memory since it started, in control groups too; 0 where it does
    not tell. A kill that a worker did not live through was probably the one that was counted just then."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
