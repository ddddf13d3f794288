"""Runs of the engine on the starter model, through the client as the window uses it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from desktop.starter_model import find_starter_model
from inference import (
    EngineClient,
    GenerationRequest,
    ModelConfig,
    RequestFinished,
    SamplingParams,
    TokenDelta,
)

# Each is one token of the starter model's vocabulary, also behind itself.
_WORDS = (" river", " water", " house", " light", " night", " music", " green", " paper")


def starter() -> Path:
    path = find_starter_model()
    assert path is not None
    return path


def starter_config(n_ctx: int | None = None) -> ModelConfig:
    return ModelConfig(str(starter()), n_ctx=n_ctx)


def prompt_of(num_tokens: int, number: int) -> str:
    """Raw text of exactly so many tokens; prompts of different numbers (below 8) have no beginning in common."""
    return _WORDS[number] * num_tokens


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """began, arrived: this process's clock, in seconds. deltas: in the order they came, with the time of each."""

    began: float
    deltas: list[tuple[float, TokenDelta]]
    finished: RequestFinished

    @property
    def ttft_s(self) -> float:
        return self.deltas[0][0] - self.began

    def rate_within(self, start: float, end: float) -> float:
        """Tokens/s between the first and the last delta that came between start and end, by the worker's clock."""
        inside = [delta for arrived, delta in self.deltas if start <= arrived <= end]
        first, last = inside[0], inside[-1]
        return (last.num_generation_tokens - first.num_generation_tokens) / (last.decode_s - first.decode_s)


async def answer(client: EngineClient, request: GenerationRequest) -> Answer:
    began = time.perf_counter()
    deltas: list[tuple[float, TokenDelta]] = []
    async for event in client.generate(request):
        if isinstance(event, TokenDelta):
            deltas.append((time.perf_counter(), event))
        if isinstance(event, RequestFinished):
            return Answer(began, deltas, event)
    raise AssertionError("no reply")


async def answer_prompt(client: EngineClient, config: ModelConfig, prompt: str, max_tokens: int) -> Answer:
    return await answer(client, GenerationRequest(config, prompt=prompt, sampling=greedy(max_tokens)))


@dataclass(slots=True)
class Comparison:
    """Figures of ours and of a peer's, by turns: one of each at about the same time."""

    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)

    def add(self, ours: float, peers: float) -> None:
        self.ours.append(ours)
        self.peers.append(peers)

    @property
    def ratio(self) -> float:
        """Ours by the peer's, the median over the turns: a machine that was slow for a while was so for both."""
        return median(ours / peers for ours, peers in zip(self.ours, self.peers, strict=True))

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({median(self.ours):.1f} to {median(self.peers):.1f})"
