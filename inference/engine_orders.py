"""What the inference thread is asked to do, in the order it came."""

from __future__ import annotations

from dataclasses import dataclass

from inference.model_config import ModelConfig
from inference.request import GenerationRequest, ReadAhead


@dataclass(frozen=True, slots=True)
class Submitted:
    """arrived: time.monotonic()."""

    request: GenerationRequest
    arrived: float


@dataclass(frozen=True, slots=True)
class Prefetch:
    request: GenerationRequest
    how_much: ReadAhead


@dataclass(frozen=True, slots=True)
class Forget:
    owner: str


@dataclass(frozen=True, slots=True)
class Explain:
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Count:
    request: GenerationRequest


# A ModelConfig: load it.
Order = Submitted | ModelConfig | Prefetch | Explain | Count | Forget
