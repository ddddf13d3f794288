"""Real models: the starter model and tiny ones of every kind of memory."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from desktop.starter_model import find_starter_model
from inference.engine import Engine
from inference.events import Event, RequestFailed, RequestFinished
from inference.kvcache.model_digest import ModelDigests
from inference.loaded_model import LoadedModel
from inference.model_config import ModelConfig
from inference.request import RequestId
from tests.inference.stored_chats import StoredChats
from tests.tiny_models import write_hybrid, write_llama, write_mamba, write_sliding_window

TINY_KINDS = ("mha", "gqa", "mqa", "sliding window", "recurrent", "hybrid")


@pytest.fixture(scope="session")
def starter_path() -> Path:
    path = find_starter_model()
    assert path is not None, "the starter model is not installed: run `make test`"
    return path


@pytest.fixture(scope="session")
def tiny_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A GGUF file for each of TINY_KINDS."""
    folder = tmp_path_factory.mktemp("tiny models")
    return {
        "mha": write_llama(folder / "mha.gguf"),
        "gqa": write_llama(folder / "gqa.gguf", n_head_kv=2),
        "mqa": write_llama(folder / "mqa.gguf", n_head_kv=1),
        "sliding window": write_sliding_window(folder / "swa.gguf"),
        "recurrent": write_mamba(folder / "mamba.gguf"),
        "hybrid": write_hybrid(folder / "hybrid.gguf"),
    }


@pytest.fixture
def load() -> Iterator[Callable[..., LoadedModel]]:
    """load(path, n_ctx=..., digests=...) -> LoadedModel; closed after the test."""
    opened: list[LoadedModel] = []

    def load(path: Path, n_ctx: int = 2048, digests: ModelDigests | None = None) -> LoadedModel:
        config = ModelConfig(str(path), n_ctx=n_ctx, n_threads=1)
        opened.append(LoadedModel(config, digests, lambda _fraction: True))
        return opened[-1]

    yield load
    for loaded in opened:
        loaded.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes of it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting needs Linux and root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


class RunningEngine(Engine):
    """An Engine on a thread of its own; events are kept in order."""

    def __init__(self, kv_store: Path | None, store_budget_bytes: int | None = None) -> None:
        self.events: list[Event] = []
        self._arrived = threading.Condition()
        super().__init__(self._keep, kv_store, store_budget_bytes)
        self._thread = threading.Thread(target=self.run, args=(lambda: 30.0,))
        self._thread.start()

    def _keep(self, event: Event) -> None:
        with self._arrived:
            self.events.append(event)
            self._arrived.notify_all()

    def wait_for(self, matches: Callable[[Event], bool]) -> Event:
        """The first event that matches, waited for."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: any(map(matches, self.events)), timeout=300)
            return next(event for event in self.events if matches(event))

    def end_of(self, request_id: RequestId) -> RequestFinished | RequestFailed:
        event = self.wait_for(
            lambda event: (
                isinstance(event, RequestFinished | RequestFailed) and event.request_id == request_id
            )
        )
        assert isinstance(event, RequestFinished | RequestFailed)
        return event

    def finished(self, request_id: RequestId) -> RequestFinished:
        event = self.end_of(request_id)
        assert isinstance(event, RequestFinished), event
        return event

    def failed(self, request_id: RequestId) -> RequestFailed:
        event = self.end_of(request_id)
        assert isinstance(event, RequestFailed), event
        return event

    def close(self) -> None:
        """Stop, and wait until all that was handed to the store is on disk."""
        self.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        # A worker ends with its process; here a model would stay for all the tests to come.
        self._prompts.close(wait=True)
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[Callable[..., RunningEngine]]:
    """start_engine(kv_store=..., store_budget_bytes=...) -> RunningEngine; stopped after the test."""
    started: list[RunningEngine] = []

    def start(kv_store: Path | None = None, store_budget_bytes: int | None = None) -> RunningEngine:
        started.append(RunningEngine(kv_store, store_budget_bytes))
        return started[-1]

    yield start
    for engine in started:
        engine.close()


@pytest.fixture
def open_chats(tmp_path: Path) -> Iterator[Callable[..., StoredChats]]:
    """open_chats(model, …) -> StoredChats; closed after the test."""
    opened: list[StoredChats] = []

    def open_chats(model: Path, **params: int) -> StoredChats:
        opened.append(StoredChats(model, tmp_path / "kv", **params))
        return opened[-1]

    yield open_chats
    for chats in opened:
        chats.close()
