"""What keeping every block costs the decode that goes on meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inference import (
    EngineClient,
    GenerationRequest,
    ModelConfig,
    RequestFinished,
    SamplingParams,
    WorkerConfig,
)
from tests.benchmarks.engine_runs import starter

pytestmark = pytest.mark.long

REPEATS = 5
MOST_TIMES_SLOWER = 1.02


async def decode_rates(kv_store: Path) -> tuple[float, float]:
    """Best tokens/s without and with storing, in turns so that both see the same machine."""
    config = ModelConfig(str(starter()))
    clients = [EngineClient(WorkerConfig()), EngineClient(WorkerConfig(kv_store=kv_store))]
    rates: list[list[float]] = [[], []]
    for client in clients:
        await client.load_model(config)
    for repeat in range(REPEATS):
        for client, measured in zip(clients, rates, strict=True):
            # Another beginning each time, so that all of it is new to the store; long enough for two blocks.
            sampling = SamplingParams(temperature=1.0, min_p=0.0, seed=repeat, max_tokens=520)
            request = GenerationRequest(config, prompt=f"{repeat} Once upon a time", sampling=sampling)
            async for event in client.generate(request):
                if isinstance(event, RequestFinished) and event.decode_tokens_per_second:
                    measured.append(event.decode_tokens_per_second)
    for client in clients:
        await client.close(60)
    return max(rates[0]), max(rates[1])


def test_decode_with_storing_is_hardly_slower(tmp_path: Path) -> None:
    without, with_store = asyncio.run(decode_rates(tmp_path))
    print(
        f"\ndecode: {without:.1f} tokens/s without store, {with_store:.1f} with: {without / with_store:.3f} times"
    )
    assert without / with_store <= MOST_TIMES_SLOWER
