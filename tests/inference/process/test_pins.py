"""Pinned chats from the client to the files, over several workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from inference import (
    EngineClient,
    GenerationRequest,
    ModelConfig,
    RequestFinished,
    SamplingParams,
    WorkerConfig,
)

# Room for three or four of the chats below.
BUDGET_BYTES = 1_000_000
OTHERS = "dgkqzxv"


class Chats:
    """Chats of one letter each, which is their owner too. Every `with` is a worker of its own."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = ModelConfig(str(model), n_ctx=1024, n_threads=1)
        self._config = WorkerConfig(folder / "kv", folder / "worker.log", store_budget_bytes=BUDGET_BYTES)

    async def __aenter__(self) -> Chats:
        self.client = EngineClient(self._config)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.client.close(30)

    def _request(self, letter: str, length: int) -> GenerationRequest:
        sampling = SamplingParams(temperature=0.0, max_tokens=1)
        return GenerationRequest(self._model, prompt=letter * length, sampling=sampling, owner=letter)

    async def read(self, letters: str, length: int = 600) -> None:
        for letter in letters:
            *_, last = [event async for event in self.client.generate(self._request(letter, length))]
            assert isinstance(last, RequestFinished)

    async def stored(self, letter: str, length: int = 600) -> int:
        """Tokens; all but the last is all that is looked for."""
        return (await self.client.explain(self._request(letter, length))).num_stored_tokens


async def test_a_pinned_chat_outlives_restarts_and_growth_until_it_is_unpinned(
    tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    chats = Chats(tiny_paths["gqa"], tmp_path)
    async with chats:
        # Before there is a worker: it is told when it starts.
        chats.client.set_pins(["b"])
        await chats.read("b" + OTHERS)
    async with chats:
        assert (await chats.stored("b"), await chats.stored("d")) == (599, 0)
        # Not pinned anew: the store itself knows.
        await chats.read("b", 700)
        await chats.read(OTHERS)
    async with chats:
        assert (await chats.stored("b", 700), await chats.stored("d")) == (699, 0)
        chats.client.set_pins([])
        await chats.read(OTHERS)
    async with chats:
        assert await chats.stored("b", 700) == 0


async def test_a_pin_goes_with_its_owner_and_a_new_worker_is_told_of_it(
    tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    chats = Chats(tiny_paths["gqa"], tmp_path)
    pins = tmp_path / "kv" / "owners"
    async with chats:
        chats.client.set_pins(["b", "d"])
        await chats.read("bd")
        assert len(list(pins.glob("*.pin"))) == 2
        chats.client.forget("b")
        # What was just read is still on its way to the disk, and nobody tells when it is there.
        while await chats.stored("d") != 599:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(list(pins.glob("*.pin"))) == 1
        # Whatever happened to the files, and to the worker.
        for path in pins.glob("*.pin"):
            path.unlink()
        await chats.client.close(30)
        chats.client._is_closing = False
        assert await chats.stored("b") == 0
        assert len(list(pins.glob("*.pin"))) == 2
