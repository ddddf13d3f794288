"""Writing in several chats at once, against llama-batched-bench with one unified cache."""

from __future__ import annotations

import asyncio

import pytest

from inference import EngineClient, ModelConfig, WorkerConfig
from tests.benchmarks.engine_runs import Comparison, answer_prompt, prompt_of, starter_config
from tests.benchmarks.peer_runs import default_environment, llama_batched_bench, peer_environment

pytestmark = pytest.mark.long

LEAST_OF_LLAMA_BATCHED_BENCH = 0.95
TURNS = 3
NUM_CHATS = (1, 2, 4, 8)
N_CTX = 8192
DEPTH = 512
NUM_GENERATED = 128


async def rates_of_chats(client: EngineClient, config: ModelConfig) -> dict[int, float]:
    """Tokens/s while all of so many chats write."""
    await client.load_model(config)
    rates = {}
    for num_chats in NUM_CHATS:
        prompts = [prompt_of(DEPTH, number) for number in range(num_chats)]
        # What is new is read first; then every chat goes on from memory, and all begin within a few steps.
        for prompt in prompts:
            await answer_prompt(client, config, prompt, 1)
        answers = await asyncio.gather(
            *(answer_prompt(client, config, prompt, NUM_GENERATED) for prompt in prompts)
        )
        assert all(told.finished.counts.prefilled_tokens == 1 for told in answers)
        start = max(told.deltas[0][0] for told in answers)
        end = min(told.deltas[-1][0] for told in answers)
        rates[num_chats] = sum(told.rate_within(start, end) for told in answers)
    return rates


async def test_chats_at_once_are_as_quick_as_llama_batched_bench() -> None:
    client = EngineClient(WorkerConfig())
    same = {num_chats: Comparison() for num_chats in NUM_CHATS}
    default = {num_chats: Comparison() for num_chats in NUM_CHATS}

    def peers(environment: dict[str, str]) -> dict[int, float]:
        return llama_batched_bench(
            environment, n_ctx=N_CTX, depth=DEPTH, num_generated=NUM_GENERATED, num_chats=NUM_CHATS
        )

    for turn in range(TURNS):
        peer = peers(peer_environment())
        # Another config each time, so that the model is loaded anew and no chat is in memory.
        ours = await rates_of_chats(client, starter_config(n_ctx=N_CTX - turn))
        by_itself = peers(default_environment()) if turn == 0 else {}
        for num_chats in NUM_CHATS:
            same[num_chats].add(ours[num_chats], peer[num_chats])
            if by_itself:
                default[num_chats].add(ours[num_chats], by_itself[num_chats])
    await client.close(5)
    for num_chats in NUM_CHATS:
        print(
            f"\n{num_chats} chats at depth {DEPTH}: {same[num_chats]} tokens/s of llama-batched-bench's; "
            f"as it runs by itself: {default[num_chats]}",
            end="",
        )
    print()
    ratios = {num_chats: comparison.ratio for num_chats, comparison in same.items()}
    assert min(ratios.values()) >= LEAST_OF_LLAMA_BATCHED_BENCH, ratios
