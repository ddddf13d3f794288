"""What disks and kills do to chats: never another logit than a model without a store gives, and replies go on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.events import RequestFailed, RequestFinished, StoreNotice
from inference.kvcache.block_store import BlockStore
from inference.model_config import ModelConfig
from inference.process.client import EngineClient
from inference.process.worker_config import WorkerConfig
from inference.request import ErrorCode, FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.conftest import RunningEngine
from tests.inference.stored_chats import StoredChats
from tests.inference.whole_store import assert_whole
from tests.tiny_models import TinyModel, write_hybrid, write_llama, write_mamba, write_sliding_window

ROOT = Path(__file__).resolve().parents[2]
ONE_LAYER = TinyModel(n_layer=1)
# A prime, so that every column of the rows has its turn.
STEP = 97
SMALL_MODELS: dict[str, Callable[[Path], Path]] = {
    "mqa": lambda path: write_llama(path, ONE_LAYER, n_head=1, n_head_kv=1),
    "sliding window": lambda path: write_sliding_window(path, n_head=1, n_head_kv=1, n_swa=4),
    "recurrent": lambda path: write_mamba(path, ONE_LAYER),
    "hybrid": lambda path: write_hybrid(path, n_head_kv=1),
}
posix_only = pytest.mark.skipif(os.name == "nt", reason="needs POSIX")


class SmallStore:
    """A chat of a few tokens, stored, and all of its files."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.chats = StoredChats(SMALL_MODELS[kind](folder / "model.gguf"), folder / "kv", n_ctx=256)
        self.chats.ask("bdgkqbdgkq", max_tokens=1)
        self._files = {path: path.read_bytes() for path in sorted(self.chats.folder.glob("*/*.kv"))}
        self.num_restored = 10

    @property
    def files(self) -> list[tuple[Path, bytes]]:
        return list(self._files.items())

    def ask(self) -> int:
        """Tokens restored for the chat's next turn, in an empty context by a process that knows only the files."""
        self.chats.store.close(30)
        self.chats.store = BlockStore(self.chats.folder, 10**9, on_notice=pytest.fail)
        self.chats.loaded.context.clear()
        return self.chats.ask("bdgkqbdgkqx", max_tokens=1).counts.restored_tokens

    def put_back(self) -> None:
        for path in self.chats.folder.glob("*/*.kv"):
            path.unlink()
        for path, data in self._files.items():
            path.write_bytes(data)


@pytest.fixture(params=SMALL_MODELS)
def small_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallStore]:
    store = SmallStore(request.param, tmp_path)
    yield store
    store.chats.close()


def flip_bytes(store: SmallStore, step: int) -> None:
    """Each byte before the payload and every step-th of the payload."""
    for path, data in store.files:
        for position in [*range(min(400, len(data))), *range(400, len(data), step), len(data) - 1]:
            store.put_back()
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            assert store.ask() < store.num_restored
    store.put_back()
    assert store.ask() == store.num_restored


def test_a_flipped_byte_gives_no_other_logit(small_store: SmallStore) -> None:
    flip_bytes(small_store, STEP)


@pytest.mark.long
def test_any_flipped_byte_gives_no_other_logit(small_store: SmallStore) -> None:
    flip_bytes(small_store, 1)


def test_truncated_emptied_and_zeroed_files_are_misses(small_store: SmallStore) -> None:
    for path, data in small_store.files:
        lengths = [0, 1, 15, 16, 100, 188, 189, 250, len(data) // 2, len(data) - 1]
        for content in [*(data[:length] for length in lengths), bytes(len(data)), data + b"\0"]:
            small_store.put_back()
            path.write_bytes(content)
            assert small_store.ask() < small_store.num_restored


def test_files_of_another_fingerprint_are_misses(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = SmallStore("mqa", tmp_path / "one"), SmallStore("hybrid", tmp_path / "other")
    others_block = next(data for path, data in other.files if path.name.startswith("b-"))
    for path, _ in one.files:
        path.write_bytes(others_block)
    assert one.ask() == 0
    # And under their own names.
    for path, data in other.files:
        (one.files[0][0].parent / path.name).write_bytes(data)
    assert one.ask() == one.num_restored
    for store in (one, other):
        store.chats.close()


# --- kill -9 -----------------------------------------------------------------------------------------


def chat_request(model: ModelConfig, number: int, num_turns: int) -> GenerationRequest:
    """One of a few chats that share beginnings; random replies, so that some are new each time."""
    return GenerationRequest(
        model,
        prompt="z" * 300 + "bdgkq"[number % 5] * 100 * num_turns,
        sampling=SamplingParams(temperature=1.0, max_tokens=200),
        owner=f"chat {number}",
    )


async def kill_while_chatting(model: Path, folder: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    config = ModelConfig(str(model), n_ctx=2048, n_threads=1)
    client = EngineClient(WorkerConfig(folder / "kv", folder / "worker.log", store_budget_bytes=2_000_000))
    greedy = GenerationRequest(
        config, prompt="z" * 300 + "x", sampling=SamplingParams(temperature=0.0, max_tokens=5)
    )

    async def reply(request: GenerationRequest) -> RequestFinished | RequestFailed:
        async for event in client.generate(request):
            last = event
        assert isinstance(last, RequestFinished | RequestFailed)
        return last

    async def chat_on() -> None:
        while True:
            if dice.random() < 0.2:
                client.forget(f"chat {dice.randrange(8)}")
            ended = await reply(chat_request(config, dice.randrange(8), dice.randrange(1, 10)))
            if isinstance(ended, RequestFailed):
                assert ended.code == ErrorCode.ENGINE_DIED
                return

    expected: tuple[int, ...] | None = None
    for _ in range(times):
        first = await reply(greedy)
        assert isinstance(first, RequestFinished)
        expected = expected or first.token_ids
        assert first.token_ids == expected
        chatting = asyncio.create_task(chat_on())
        await asyncio.sleep(dice.random())
        assert client.worker_pid is not None
        os.kill(client.worker_pid, signal.SIGKILL)
        await chatting
        assert_whole(folder / "kv")
        assert list((folder / "kv").glob("*/*.kv"))
    await client.close(10)
    command = (sys.executable, "-m", "inference", "store", str(folder / "kv"), "verify")
    verify = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL)
    assert await verify.wait() == 0


@posix_only
async def test_a_killed_worker_leaves_a_whole_store(tiny_paths: dict[str, Path], tmp_path: Path) -> None:
    await kill_while_chatting(tiny_paths["gqa"], tmp_path, times=10, seed=1)


@posix_only
async def test_a_killed_worker_leaves_whole_checkpoints(tiny_paths: dict[str, Path], tmp_path: Path) -> None:
    await kill_while_chatting(tiny_paths["hybrid"], tmp_path, times=10, seed=2)


@posix_only
@pytest.mark.long
async def test_a_worker_killed_two_hundred_times_leaves_a_whole_store(
    tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    await kill_while_chatting(tiny_paths["gqa"], tmp_path, times=200, seed=3)


# --- disks that refuse ---------------------------------------------------------------------------------


def reply_lengths(engine: RunningEngine, model: Path, letters: str) -> list[int]:
    """Restored tokens of one reply after the other."""
    restored = []
    for letter in letters:
        request = GenerationRequest(
            ModelConfig(str(model), n_ctx=1024, n_threads=1),
            prompt=letter * 600,
            sampling=SamplingParams(temperature=0.0, max_tokens=5),
            owner=letter,
        )
        engine.submit(request)
        finished = engine.finished(request.request_id)
        assert finished.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
        restored.append(finished.counts.restored_tokens)
    return restored


def notices(engine: RunningEngine) -> list[str]:
    return [event.message for event in engine.events if isinstance(event, StoreNotice)]


def test_on_a_full_disk_replies_go_on_and_the_user_is_told_once(
    small_disk: Path, start_engine: Callable[..., RunningEngine], tiny_paths: dict[str, Path]
) -> None:
    engine = start_engine(kv_store=small_disk / "kv", store_budget_bytes=10**9)
    reply_lengths(engine, tiny_paths["gqa"], "bdgkqzxvBDGKQZXV")
    engine.close()
    assert len(notices(engine)) == 1
    assert "No space left on device" in notices(engine)[0]
    again = start_engine(kv_store=small_disk / "kv", store_budget_bytes=10**9)
    assert reply_lengths(again, tiny_paths["gqa"], "b") == [599]


def test_a_store_on_a_read_only_disk_is_read_and_the_user_told_once(
    small_disk: Path, start_engine: Callable[..., RunningEngine], tiny_paths: dict[str, Path]
) -> None:
    engine = start_engine(kv_store=small_disk / "kv", store_budget_bytes=10**9)
    reply_lengths(engine, tiny_paths["gqa"], "b")
    engine.close()
    assert notices(engine) == []
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    again = start_engine(kv_store=small_disk / "kv", store_budget_bytes=10**9)
    assert reply_lengths(again, tiny_paths["gqa"], "bdgk") == [599, 0, 0, 0]
    again.close()
    assert len(notices(again)) == 1
    assert "Read-only file system" in notices(again)[0]


def test_a_budget_of_one_megabyte_is_kept_and_replies_go_on(
    start_engine: Callable[..., RunningEngine], tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    engine = start_engine(kv_store=tmp_path / "kv", store_budget_bytes=1_000_000)
    reply_lengths(engine, tiny_paths["gqa"], "bdgkqzxv")
    engine.close()
    assert notices(engine) == []
    files = [path.stat().st_size for path in (tmp_path / "kv").rglob("*.kv")]
    assert 300_000 < sum(files) <= 1_000_000
    again = start_engine(kv_store=tmp_path / "kv", store_budget_bytes=1_000_000)
    assert reply_lengths(again, tiny_paths["gqa"], "vb") == [599, 0]


def test_a_budget_smaller_than_one_chat_is_told_once(
    start_engine: Callable[..., RunningEngine], tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    engine = start_engine(kv_store=tmp_path / "kv", store_budget_bytes=100_000)
    reply_lengths(engine, tiny_paths["gqa"], "bdgk")
    engine.close()
    assert len(notices(engine)) == 1
    assert "store is full" in notices(engine)[0]
    assert sum(path.stat().st_size for path in (tmp_path / "kv").rglob("*.kv")) <= 100_000
