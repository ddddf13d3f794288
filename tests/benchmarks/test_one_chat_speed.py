"""Reading and writing in one chat, against llama-bench."""

from __future__ import annotations

import itertools
from statistics import median

import pytest

from inference import EngineClient, ModelConfig, WorkerConfig
from tests.benchmarks.engine_runs import Comparison, answer_prompt, prompt_of, starter_config
from tests.benchmarks.peer_runs import default_environment, llama_bench, peer_environment

pytestmark = pytest.mark.long

LEAST_OF_LLAMA_BENCH = 0.98
TURNS = 5
TURNS_IN_DEFAULT_ENVIRONMENT = 2
NUM_GENERATED = 128


async def compare(
    name: str, client: EngineClient, config: ModelConfig, *, num_prompt: int, depth: int, repetitions: int
) -> float:
    """Our tokens/s by llama-bench's: of reading num_prompt tokens, or, where that is 0, of writing behind `depth`."""

    next_number = itertools.cycle((0, 1)).__next__

    async def ours() -> float:
        if num_prompt:
            # The context holds one prompt, so that the one before is gone and this one is read.
            read = await answer_prompt(client, config, prompt_of(num_prompt, next_number()), 1)
            assert read.finished.counts.prefilled_tokens == num_prompt
            return num_prompt / read.finished.timings.prefill_s
        # The prompt is in memory from the time before: what was written behind it is taken back.
        written = await answer_prompt(client, config, prompt_of(max(1, depth), 0), NUM_GENERATED + 1)
        assert written.finished.counts.num_prompt_tokens == max(1, depth)
        assert written.finished.decode_tokens_per_second is not None
        return written.finished.decode_tokens_per_second

    def peers(environment: dict[str, str]) -> float:
        num_generated = 0 if num_prompt else NUM_GENERATED
        rates = llama_bench(
            environment,
            num_prompt=num_prompt,
            num_generated=num_generated,
            depth=depth,
            repetitions=repetitions,
        )
        return median(rates)

    await client.load_model(config)
    # As llama-bench warms up.
    await ours()
    same, default = Comparison(), Comparison()
    for turn in range(TURNS):
        peer = peers(peer_environment())
        rate = median([await ours() for _ in range(repetitions)])
        same.add(rate, peer)
        if turn < TURNS_IN_DEFAULT_ENVIRONMENT:
            default.add(rate, peers(default_environment()))
    print(f"\n{name}: {same} tokens/s of llama-bench's; as it runs by itself: {default}")
    return same.ratio


@pytest.mark.parametrize(("num_prompt", "repetitions"), [(512, 3), (2048, 1)])
async def test_reading_is_as_quick_as_llama_bench(num_prompt: int, repetitions: int) -> None:
    client = EngineClient(WorkerConfig())
    config = starter_config(n_ctx=num_prompt)
    ratio = await compare(
        f"pp{num_prompt}", client, config, num_prompt=num_prompt, depth=0, repetitions=repetitions
    )
    await client.close(5)
    assert ratio >= LEAST_OF_LLAMA_BENCH


@pytest.mark.parametrize("depth", [0, 4000])
async def test_writing_is_as_quick_as_llama_bench(depth: int) -> None:
    client = EngineClient(WorkerConfig())
    config = starter_config(n_ctx=depth + NUM_GENERATED + 1)
    ratio = await compare(
        f"tg{NUM_GENERATED} at depth {depth}", client, config, num_prompt=0, depth=depth, repetitions=3
    )
    await client.close(5)
    assert ratio >= LEAST_OF_LLAMA_BENCH
