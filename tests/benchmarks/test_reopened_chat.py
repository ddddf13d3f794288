"""Time to first token of a chat that was read in another process, against what it is to be compared with.

(a) the same prompt cold; (b) the physical limit: reading the same bytes, plus one decode step; (c) llama-server's slot
restore. All but the cold one are taken in turns, one of each right after the other, and a ratio is the median over the
turns: where another program takes its share of the processor for a while, it takes it of all.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from inference import (
    EngineClient,
    GenerationRequest,
    Message,
    ModelConfig,
    RequestFinished,
    SamplingParams,
    WorkerConfig,
)
from tests.benchmarks.engine_runs import Comparison, answer, starter
from tests.benchmarks.llama_server import LlamaServer, running_server
from tests.benchmarks.peer_runs import peer_environment

pytestmark = pytest.mark.long

TURNS = 11
SETTLE_S = 0.1
N_CTX = 8448
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SENTENCE = "The river bends twice before it meets the old mill. "
MOST_TIMES_THE_LIMIT = 1.5
LEAST_TIMES_FASTER_THAN_COLD_AT_4K = 100
MOST_TIMES_LLAMA_SERVER = 1.0


@dataclass(frozen=True, slots=True)
class Reopened:
    """Seconds, on this side of the pipe."""

    num_tokens: int
    num_bytes: int
    cold_s: float
    dropped_s: float
    to_limit: Comparison
    to_llama_server: Comparison

    @property
    def warm_s(self) -> float:
        return median(self.to_limit.ours)


def chat_of(num_sentences: int) -> tuple[Message, ...]:
    """Ten sentences a message, question and reply by turns, a question last."""
    texts = [SENTENCE.strip() + f" {SENTENCE.strip()}" * 9 for _ in range(max(1, num_sentences // 10) | 1)]
    return tuple(Message("assistant" if number % 2 else "user", text) for number, text in enumerate(texts))


def written_out(chat: tuple[Message, ...]) -> str:
    """As the starter model's template writes it."""
    told = "".join(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n" for message in chat)
    return f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n{told}<|im_start|>assistant\n"


async def ask(
    client: EngineClient, config: ModelConfig, asked: tuple[Message, ...] | str
) -> tuple[float, RequestFinished]:
    """Seconds until the first token is here, and the worker's own account."""
    sampling = SamplingParams(temperature=0.0, max_tokens=1)
    request = (
        GenerationRequest(config, prompt=asked, sampling=sampling)
        if isinstance(asked, str)
        else GenerationRequest(config, messages=asked, sampling=sampling)
    )
    told = await answer(client, request)
    return told.ttft_s, told.finished


def drop_from_page_cache(folder: Path) -> None:
    for path in folder.rglob("*.kv"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.kv"))


def read_all(folder: Path) -> float:
    """Seconds to read every block into memory that is there already: each block into its own, as the KV cache is. One
    small buffer for all of them would stay in the processor's cache, and its bytes would never be written to memory."""
    paths = list(folder.rglob("*.kv"))
    memory = np.ones(bytes_in(folder), dtype=np.uint8)
    offset = 0
    began = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            offset += file.readinto(memory[offset:].data)
    return time.perf_counter() - began


async def measure(chat: tuple[Message, ...], folder: Path, peer: SlotRestore) -> Reopened:
    config = ModelConfig(str(starter()), n_ctx=N_CTX)
    first = EngineClient(WorkerConfig(kv_store=folder))
    await first.load_model(config)
    cold_s, finished = await ask(first, config, chat)
    num_tokens = finished.counts.num_prompt_tokens
    assert peer.num_tokens == num_tokens
    # The window keeps them with the messages.
    chat = tuple(
        replace(message, token_ids=ids) for message, ids in zip(chat, finished.message_ids, strict=True)
    )
    await first.close(60)
    second = EngineClient(WorkerConfig(kv_store=folder))
    await second.load_model(config)

    async def reopened(prepare: Callable[[], None] = lambda: None) -> tuple[float, float]:
        """Until the first token, and the decode step within it."""
        # Another chat in between takes the place in memory, so that all comes from the store again.
        await ask(second, config, "z")
        prepare()
        # What the other chat left to be written is none of this one's time.
        await asyncio.sleep(SETTLE_S)
        seconds, warm = await ask(second, config, chat)
        assert warm.counts.prefilled_tokens == 1
        assert warm.counts.reused_tokens == 0
        return seconds, warm.timings.prefill_s

    to_limit, to_llama_server = Comparison(), Comparison()
    await reopened()
    for _ in range(TURNS):
        seconds, step_s = await reopened()
        to_limit.add(seconds, read_all(folder) + step_s)
        to_llama_server.add(seconds, peer.seconds())
    # After the rest: what fills the page cache again may lie in smaller pages, which take longer to copy.
    dropped = [await reopened(lambda: drop_from_page_cache(folder)) for _ in range(3)]
    await second.close(60)
    return Reopened(
        num_tokens,
        bytes_in(folder),
        cold_s,
        median(seconds for seconds, _ in dropped),
        to_limit,
        to_llama_server,
    )


class SlotRestore:
    """llama-server with the prompt's state in a file."""

    def __init__(self, server: LlamaServer, prompt: str) -> None:
        self._server, self._prompt = server, prompt
        self.num_tokens, _ = server.first_token(prompt)
        server.slot("save", "chat")

    def seconds(self) -> float:
        """To restore the slot, and on to the first token."""
        self._server.first_token("z")
        time.sleep(SETTLE_S)
        restored_s = self._server.slot("restore", "chat")
        num_evaluated, seconds = self._server.first_token(self._prompt)
        assert num_evaluated == 1
        return restored_s + seconds


def in_ms(comparison: Comparison) -> str:
    ours, peers = median(comparison.ours) * 1e3, median(comparison.peers) * 1e3
    return f"{comparison.ratio:.2f} ({ours:.1f} ms to {peers:.1f} ms)"


@pytest.mark.parametrize("num_sentences", [88, 345, 685], ids=["1k", "4k", "8k"])
def test_a_reopened_chat_is_as_quick_as_the_disk_and_one_step_allow(
    tmp_path: Path, num_sentences: int
) -> None:
    chat = chat_of(num_sentences)
    slots = tmp_path / "slots"
    slots.mkdir()
    with running_server(
        peer_environment(), n_ctx=N_CTX, slots=1, options=("--slot-save-path", str(slots))
    ) as server:
        peer = SlotRestore(server, written_out(chat))
        reopened = asyncio.run(measure(chat, tmp_path / "kv", peer))
    times_faster = reopened.cold_s / reopened.warm_s
    print(
        f"\n{reopened.num_tokens} tokens, {reopened.num_bytes / 1e6:.0f} MB: cold {reopened.cold_s * 1e3:.0f} ms, "
        f"page cache dropped {reopened.dropped_s * 1e3:.1f} ms | cold/reopened {times_faster:.0f}, "
        f"reopened/limit {in_ms(reopened.to_limit)}, reopened/llama-server {in_ms(reopened.to_llama_server)}"
    )
    if num_sentences == 345:
        assert times_faster >= LEAST_TIMES_FASTER_THAN_COLD_AT_4K
    assert reopened.to_limit.ratio <= MOST_TIMES_THE_LIMIT
    assert reopened.to_llama_server.ratio <= MOST_TIMES_LLAMA_SERVER
