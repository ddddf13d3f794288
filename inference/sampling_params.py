"""How the next token is chosen from the logits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of the sampler chain. temperature 0 is greedy; every other default is neutral (off).

    top_k 0, top_p 1.0, min_p 0.0 and repeat_penalty 1.0 each leave their sampler out.
    seed None draws a new seed per reply; the seed really used is reported with the reply.
    max_tokens None: until the model ends its turn or the context is full.
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        _require(0.0 <= self.temperature <= 100.0, "temperature", "between 0 and 100", self.temperature)
        _require(self.top_k >= 0, "top_k", "0 (off) or more", self.top_k)
        _require(0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1", self.top_p)
        _require(0.0 <= self.min_p <= 1.0, "min_p", "between 0 and 1", self.min_p)
        _require(self.repeat_penalty > 0.0, "repeat_penalty", "above 0", self.repeat_penalty)
        if self.seed is not None:
            # 0xFFFFFFFF is llama.cpp's "draw one yourself", so it cannot be recorded and repeated.
            _require(0 <= self.seed < 0xFFFFFFFF, "seed", "between 0 and 4294967294", self.seed)
        if self.max_tokens is not None:
            _require(self.max_tokens >= 1, "max_tokens", "1 or more", self.max_tokens)


def _require(holds: bool, name: str, range_text: str, value: float) -> None:
    # A NaN fails every comparison, so it ends here too.
    if not holds:
        raise ValueError(f"{name} must be {range_text}, not {value}")
