"""Real workers that are stopped, frozen, killed and orphaned: what the client tells, and that nothing stays behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from inference import (
    EngineClient,
    EngineError,
    EngineEvent,
    ErrorCode,
    GenerationRequest,
    ModelConfig,
    ModelLoadProgress,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    SamplingParams,
    StopUnanswered,
    TokenDelta,
    WorkerConfig,
    WorkerExited,
)
from inference.load_marks import LoadMarks
from inference.process.watchdog import Patience

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stops and freezes processes as Linux does")
GREEDY = SamplingParams(temperature=0.0, max_tokens=3)
ENDLESS = SamplingParams(temperature=0.0)
# Steps of these models take milliseconds; a heartbeat comes once a second, also on a busy computer within three.
HASTY = Patience(start_s=60.0, silence_s=3.0, stuck_s=2.5, stop_s=0.5)


@dataclass
class Watched:
    """A client, what it told, and what is to happen to its worker when it begins a load."""

    client: EngineClient
    marks: LoadMarks
    told: list[EngineEvent] = field(default_factory=list)
    at_load: Callable[[int], None] | None = None

    def take(self, event: EngineEvent) -> None:
        self.told.append(event)
        if isinstance(event, ModelLoadProgress) and self.at_load is not None:
            assert self.client.worker_pid is not None
            self.at_load(self.client.worker_pid)
            self.at_load = None

    def exits(self) -> list[WorkerExited]:
        return [event for event in self.told if isinstance(event, WorkerExited)]

    async def reply(
        self, request: GenerationRequest, at_text: Callable[[int], None] | None = None
    ) -> list[RequestEvent]:
        """All events; at_text is called with the worker's id at the first token."""
        events = []
        async for event in self.client.generate(request):
            events.append(event)
            if isinstance(event, TokenDelta) and at_text is not None:
                assert self.client.worker_pid is not None
                at_text(self.client.worker_pid)
                at_text = None
        return events


@pytest_asyncio.fixture
async def watched(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Watched]:
    patience: Patience = getattr(request, "param", HASTY)
    marks = tmp_path / "loads.json"
    config = WorkerConfig(None, tmp_path / "worker.log", load_marks=marks)
    watched = Watched(EngineClient(config, lambda event: watched.take(event), patience), LoadMarks(marks))
    yield watched
    await watched.client.close(10)


@pytest.fixture
def model(starter_path: Path) -> ModelConfig:
    return ModelConfig(str(starter_path), n_ctx=4096, n_threads=1)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.fixture
def freeze() -> Iterator[Callable[[int], None]]:
    """freeze(pid): its inference thread alone never goes on."""
    tracers: list[subprocess.Popen[str]] = []

    def freeze(pid: int) -> None:
        code = str(Path(__file__).with_name("frozen_thread.py"))
        tracers.append(subprocess.Popen([sys.executable, code, str(pid)], stdout=subprocess.PIPE, text=True))
        assert tracers[-1].stdout is not None
        answer = tracers[-1].stdout.readline()
        if not answer.strip().isdigit():
            pytest.skip(f"no thread may be frozen here ({answer.strip()})")
        assert int(answer) != pid, "the main thread was frozen, not the inference thread"

    yield freeze
    for tracer in tracers:
        tracer.kill()
        tracer.wait()


async def test_a_stopped_worker_is_ended_and_the_partial_reply_kept(
    watched: Watched, model: ModelConfig
) -> None:
    events = await watched.reply(GenerationRequest(model, prompt="Once upon a time", sampling=ENDLESS), stop)
    failed = events[-1]
    assert isinstance(failed, RequestFailed)
    assert failed.code == ErrorCode.ENGINE_DIED
    assert "hung" in failed.message
    assert "is kept" in failed.message
    assert any(isinstance(event, TokenDelta) for event in events)
    assert [(exited.cause, exited.loading) for exited in watched.exits()] == [("hang", None)]
    after = await watched.reply(GenerationRequest(model, prompt="Once", sampling=GREEDY))
    assert isinstance(after[-1], RequestFinished)


@pytest.mark.parametrize("watched", [Patience(start_s=60.0, silence_s=60.0, stuck_s=1.5)], indirect=True)
async def test_a_call_that_never_returns_is_a_hang_although_the_worker_gives_signs_of_life(
    watched: Watched, model: ModelConfig, freeze: Callable[[int], None]
) -> None:
    events = await watched.reply(
        GenerationRequest(model, prompt="Once upon a time", sampling=ENDLESS), freeze
    )
    failed = events[-1]
    assert isinstance(failed, RequestFailed)
    # Its silence would have been borne longer than this test.
    assert "hung" in failed.message


async def test_a_hang_in_a_load_is_told_as_such_and_remembered(watched: Watched, model: ModelConfig) -> None:
    watched.at_load = stop
    with pytest.raises(EngineError, match=r"hung .* while it loaded .*; try") as refused:
        await watched.client.load_model(model)
    assert refused.value.code == ErrorCode.ENGINE_DIED
    assert [(exited.cause, exited.loading) for exited in watched.exits()] == [("hang", model)]
    assert watched.marks.read() == (model,)
    await watched.client.load_model(model)
    assert watched.marks.read() == ()


@pytest.mark.parametrize("fatal", [signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS])
async def test_a_crash_in_a_load_has_a_name_and_is_remembered(
    watched: Watched, model: ModelConfig, fatal: signal.Signals
) -> None:
    watched.at_load = lambda pid: os.kill(pid, fatal)
    with pytest.raises(EngineError, match=fatal.name):
        await watched.client.load_model(model)
    assert [exited.loading for exited in watched.exits()] == [model]
    assert watched.marks.read() == (model,)


async def test_a_load_that_is_cut_off_by_quitting_is_nobodys_fault(
    watched: Watched, model: ModelConfig
) -> None:
    watched.at_load = stop
    loading = asyncio.create_task(watched.client.load_model(model))
    while watched.at_load is not None:  # noqa: ASYNC110 - polled, as events come by a callback
        await asyncio.sleep(0.01)
    await watched.client.close(0.1)
    with pytest.raises(EngineError):
        await loading
    assert watched.marks.read() == ()
    assert watched.exits() == []


async def test_a_stop_without_effect_is_told_and_the_worker_can_be_ended(
    watched: Watched, model: ModelConfig
) -> None:
    request = GenerationRequest(model, prompt="Once upon a time", sampling=ENDLESS)

    def stop_both(pid: int) -> None:
        stop(pid)
        watched.client.abort(request.request_id)

    replying = asyncio.create_task(watched.reply(request, stop_both))
    while not any(isinstance(event, StopUnanswered) for event in watched.told):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    watched.client.end_worker()
    failed = (await replying)[-1]
    assert isinstance(failed, RequestFailed)
    assert "did not answer" in failed.message
    assert StopUnanswered(request.request_id, is_loading=False) in watched.told


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group of 64 MB."""
    group = Path("/sys/fs/cgroup/memory/everwarm-test")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 * 2**20))
    except OSError:
        pytest.skip("a memory limit needs root and version 1 control groups")
    yield group
    group.rmdir()


async def test_the_end_by_lack_of_memory_is_told_as_such(
    small_memory: Path, watched: Watched, model: ModelConfig
) -> None:
    def confine(pid: int) -> None:
        (small_memory / "cgroup.procs").write_text(str(pid))

    watched.at_load = confine
    # Where the load itself fits, the first batch does not: it reads the weights.
    ended = await watched.reply(GenerationRequest(model, prompt="Once " * 600, sampling=GREEDY))
    assert isinstance(ended[-1], RequestFailed)
    assert "memory ran out" in ended[-1].message
    assert "2,048 tokens" in ended[-1].message


PARENT = """
import asyncio, sys
from inference import *
async def main():
    client = EngineClient(WorkerConfig())
    request = GenerationRequest(ModelConfig({path!r}, n_threads=1), prompt="Once upon a time")
    async for event in client.generate(request):
        if isinstance(event, TokenDelta):
            print(client.worker_pid, flush=True)
            await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["stopped", "frozen"])
def test_no_worker_outlives_its_window_whatever_it_is_in(
    model: ModelConfig, state: str, freeze: Callable[[int], None]
) -> None:
    code = PARENT.format(path=model.path)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    template_processes = worker.children()
    if state == "stopped":
        worker.suspend()
    else:
        freeze(worker.pid)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([worker, *template_processes], 30)
    assert not alive


def test_a_template_that_no_thread_can_interrupt_ends_with_its_process() -> None:
    # Python computes the power in one go, with the interpreter lock held; the renderer is alone with it for minutes.
    code = """
import os, threading
from inference.template_process import TemplateProcess
process = TemplateProcess(render_timeout_s=600)
process.warm_up()
threading.Thread(target=process.render, args=("{{ (n ** n) % 7 }}", [{"n": 9**8}]), daemon=True).start()
print(process.pid, flush=True)
threading.Event().wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    renderer = psutil.Process(int(parent.stdout.readline()))
    while renderer.cpu_times().user < 0.5:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([renderer], 30)
    with contextlib.suppress(psutil.NoSuchProcess):
        renderer.kill()
    assert not alive
