"""Four chats that are asked at the same time, against llama-server with four clients and as many slots.

Both read every prompt: ours has no store, and no chat in memory; llama-server is told not to use its cache.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import fmean

import pytest

from inference import EngineClient, ModelConfig, WorkerConfig
from tests.benchmarks.engine_runs import Comparison, answer_prompt, prompt_of, starter_config
from tests.benchmarks.llama_server import LlamaServer, running_server
from tests.benchmarks.peer_runs import N_UBATCH, default_environment, peer_environment

pytestmark = pytest.mark.long

LEAST_OF_LLAMA_SERVER = 0.95
MOST_TIMES_ITS_TTFT = 1.05
TURNS = 5
NUM_CLIENTS = 4
N_CTX = 8192
NUM_PROMPT = 512
NUM_GENERATED = 128


@dataclass(frozen=True, slots=True)
class Served:
    """All tokens written by the time from the first question to the last token; the mean TTFT of all clients."""

    tokens_per_s: float
    ttft_s: float


def all_served(began: float, ended: float, ttfts_s: list[float]) -> Served:
    return Served(NUM_CLIENTS * NUM_GENERATED / (ended - began), fmean(ttfts_s))


async def ours(client: EngineClient, config: ModelConfig) -> Served:
    await client.load_model(config)
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(answer_prompt(client, config, prompt_of(NUM_PROMPT, number), NUM_GENERATED) for number in range(4))
    )
    ended = time.perf_counter()
    for told in answers:
        assert told.finished.counts.prefilled_tokens == NUM_PROMPT
        assert told.finished.num_generation_tokens == NUM_GENERATED
    return all_served(began, ended, [told.ttft_s for told in answers])


def one_client(server: LlamaServer, number: int) -> float:
    """Seconds to the first token."""
    began, ttft_s = time.perf_counter(), 0.0
    for told in server.streamed(prompt_of(NUM_PROMPT, number), NUM_GENERATED):
        if not ttft_s:
            ttft_s = time.perf_counter() - began
        if told["stop"]:
            assert told["timings"]["prompt_n"] == NUM_PROMPT
            assert told["timings"]["predicted_n"] == NUM_GENERATED
    return ttft_s


async def peers(server: LlamaServer) -> Served:
    began = time.perf_counter()
    ttfts_s = await asyncio.gather(
        *(asyncio.to_thread(one_client, server, number) for number in range(NUM_CLIENTS))
    )
    return all_served(began, time.perf_counter(), ttfts_s)


@pytest.mark.parametrize("spinning", ["as in our worker", "by itself"])
async def test_four_clients_are_served_as_quickly_as_by_llama_server(spinning: str) -> None:
    is_same = spinning == "as in our worker"
    client = EngineClient(WorkerConfig())
    rates, ttfts = Comparison(), Comparison()
    options = ("-b", str(N_UBATCH), "-ub", str(N_UBATCH), "-kvu", "--cache-ram", "0")
    environment = peer_environment() if is_same else default_environment()
    with running_server(environment, n_ctx=N_CTX, slots=NUM_CLIENTS, options=options) as server:
        await peers(server)
        for turn in range(TURNS if is_same else 2):
            peer = await peers(server)
            # Another config each time, so that the model is loaded anew and no chat is in memory.
            own = await ours(client, starter_config(n_ctx=N_CTX - turn))
            rates.add(own.tokens_per_s, peer.tokens_per_s)
            ttfts.add(1e3 * own.ttft_s, 1e3 * peer.ttft_s)
    await client.close(5)
    print(
        f"\n4 clients, {NUM_PROMPT} + {NUM_GENERATED} tokens each, llama-server {spinning}: "
        f"{rates} tokens/s of its; mean TTFT {ttfts} ms"
    )
    if is_same:
        assert rates.ratio >= LEAST_OF_LLAMA_SERVER
        assert ttfts.ratio <= MOST_TIMES_ITS_TTFT
