"""The real worker process behind the client: death, restart, closing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from inference import (
    ContextPolicy,
    ContextRule,
    EngineClient,
    EngineError,
    EngineEvent,
    ErrorCode,
    FinishReason,
    GenerationRequest,
    Message,
    ModelConfig,
    ModelLoaded,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    RequestId,
    SamplingParams,
    TokenDelta,
    WorkerConfig,
    WorkerExited,
)

GREEDY = SamplingParams(temperature=0.0, max_tokens=5)
ENDLESS = SamplingParams(temperature=0.0)
StartClient = Callable[..., EngineClient]


@pytest_asyncio.fixture
async def start_client(tmp_path: Path) -> AsyncIterator[StartClient]:
    started: list[EngineClient] = []

    def start(
        kv_store: Path | None = None, on_event: Callable[[EngineEvent], None] | None = None
    ) -> EngineClient:
        started.append(EngineClient(WorkerConfig(kv_store, tmp_path / "logs" / "worker.log"), on_event))
        return started[-1]

    yield start
    for client in started:
        await client.close(10)


@pytest.fixture
def starter(starter_path: Path) -> ModelConfig:
    return ModelConfig(str(starter_path), n_ctx=4096)


async def events_of(client: EngineClient, request: GenerationRequest) -> list[RequestEvent]:
    return [event async for event in client.generate(request)]


async def test_a_reply_streams_from_another_process(start_client: StartClient, starter: ModelConfig) -> None:
    client = start_client()
    events = await events_of(client, GenerationRequest(starter, prompt="Once upon a time", sampling=GREEDY))
    finished = events[-1]
    assert isinstance(finished, RequestFinished)
    assert "".join(event.text for event in events if isinstance(event, TokenDelta)) == finished.text
    assert client.worker_pid not in (None, os.getpid())
    assert client.model_info is not None
    assert client.model_info.config == starter


async def test_a_chat_is_counted_cut_and_a_reply_continued_from_another_process(
    start_client: StartClient, starter: ModelConfig
) -> None:
    client, small = start_client(), replace(starter, n_ctx=512)
    chat = [Message("system", "Be brief.")]
    for _ in range(40):
        chat += [
            Message("user", "Tell me a story about rain and a small boat."),
            Message("assistant", "Rain."),
        ]
    asked = GenerationRequest(small, messages=(*chat, Message("user", "And then?")), sampling=GREEDY)
    with pytest.raises(EngineError) as unloaded:
        await client.count(replace(asked, request_id=RequestId("unloaded")))
    assert unloaded.value.code == ErrorCode.MODEL_NOT_LOADED
    [refused] = [event for event in await events_of(client, asked) if isinstance(event, RequestFailed)]
    assert refused.fit is not None
    assert refused.fit == await client.count(replace(asked, request_id=RequestId("counted")))
    dropped = replace(asked, context=ContextRule(ContextPolicy.DROP_OLDEST), request_id=RequestId("dropped"))
    first = (await events_of(client, dropped))[-1]
    assert isinstance(first, RequestFinished)
    assert first.fit is not None
    assert first.fit.left_out == refused.fit.left_out
    begun = Message("assistant", first.text, first.token_ids)
    rule = ContextRule(former_cut=first.fit.cut)
    again = replace(dropped, begun=begun, context=rule, request_id=RequestId("again"))
    last = (await events_of(client, again))[-1]
    assert isinstance(last, RequestFinished)
    assert last.token_ids[:5] == first.token_ids
    assert last.counts.prefilled_tokens == 1


@pytest.mark.parametrize("fatal", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
async def test_a_worker_killed_in_the_middle_of_a_reply_costs_that_reply_only(
    start_client: StartClient, starter: ModelConfig, fatal: signal.Signals
) -> None:
    told: list[EngineEvent] = []
    client = start_client(on_event=told.append)
    text, events = "", []
    async for event in client.generate(
        GenerationRequest(starter, prompt="Once upon a time", sampling=ENDLESS)
    ):
        events.append(event)
        if isinstance(event, TokenDelta) and not text:
            assert client.worker_pid is not None
            os.kill(client.worker_pid, fatal)
        text += event.text if isinstance(event, TokenDelta) else ""
    failed = events[-1]
    assert isinstance(failed, RequestFailed)
    assert failed.code == ErrorCode.ENGINE_DIED
    assert fatal.name in failed.message
    assert text
    assert [(event.cause, event.loading) for event in told if isinstance(event, WorkerExited)] == [
        (fatal.name, None)
    ]
    assert "a smaller context" in failed.message
    assert client.worker_pid is None
    after = await events_of(client, GenerationRequest(starter, prompt="Once upon a time", sampling=GREEDY))
    assert isinstance(after[-1], RequestFinished)


async def test_waiting_requests_and_loads_end_with_the_worker(
    start_client: StartClient, starter: ModelConfig
) -> None:
    client = start_client()
    running = asyncio.create_task(
        events_of(client, GenerationRequest(starter, prompt="Once", sampling=ENDLESS))
    )
    waiting = asyncio.create_task(
        events_of(client, GenerationRequest(starter, prompt="Twice", sampling=GREEDY))
    )
    other = ModelConfig(starter.path, n_ctx=512)
    load = asyncio.create_task(client.load_model(other))
    await asyncio.sleep(0)
    assert client.worker_pid is not None
    os.kill(client.worker_pid, signal.SIGKILL)
    for events in (await running, await waiting):
        assert isinstance(events[-1], RequestFailed)
        assert events[-1].code == ErrorCode.ENGINE_DIED
    with pytest.raises(EngineError, match="SIGKILL"):
        await load


async def test_closing_the_iterator_stops_the_decoding(
    start_client: StartClient, starter: ModelConfig
) -> None:
    client = start_client()
    stream = client.generate(GenerationRequest(starter, prompt="Once upon a time", sampling=ENDLESS))
    async for event in stream:
        if isinstance(event, TokenDelta):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    # The inference thread is free again: the next request is answered although the first one was endless.
    events = await events_of(client, GenerationRequest(starter, prompt="Twice", sampling=GREEDY))
    assert isinstance(events[-1], RequestFinished)


async def test_an_abort_ends_the_reply_as_cancelled(start_client: StartClient, starter: ModelConfig) -> None:
    client = start_client()
    request = GenerationRequest(starter, prompt="Once upon a time", sampling=ENDLESS)
    events = []
    async for event in client.generate(request):
        events.append(event)
        if isinstance(event, TokenDelta):
            client.abort(request.request_id)
            client.abort(request.request_id)
    assert isinstance(events[-1], RequestFinished)
    assert events[-1].finish_reason == FinishReason.CANCELLED


async def test_a_model_can_be_loaded_ahead_and_several_may_wait_for_it(
    start_client: StartClient, starter: ModelConfig
) -> None:
    told: list[EngineEvent] = []
    client = start_client(on_event=told.append)
    first, second = await asyncio.gather(client.load_model(starter), client.load_model(starter))
    assert first == second == client.model_info
    assert sum(isinstance(event, ModelLoaded) for event in told) == 1


async def test_a_missing_model_is_an_error_and_not_a_dead_worker(
    start_client: StartClient, tmp_path: Path
) -> None:
    client = start_client()
    with pytest.raises(EngineError) as refused:
        await client.load_model(ModelConfig(str(tmp_path / "gone.gguf")))
    assert refused.value.code == ErrorCode.MODEL_NOT_FOUND
    assert client.worker_pid is not None


async def test_closing_ends_the_worker_and_keeps_what_was_read(
    start_client: StartClient, starter: ModelConfig, tmp_path: Path
) -> None:
    client = start_client(kv_store=tmp_path / "kv")
    async for event in client.generate(
        GenerationRequest(starter, prompt="Once upon a time", sampling=ENDLESS)
    ):
        if isinstance(event, TokenDelta):
            break
    worker = psutil.Process(client.worker_pid)
    await client.close(20)
    assert not worker.is_running()
    assert len(list((tmp_path / "kv").rglob("*.kv"))) == 1


async def test_a_worker_that_does_not_listen_is_killed_when_the_time_is_over(
    start_client: StartClient, starter: ModelConfig
) -> None:
    client = start_client()
    await client.load_model(starter)
    worker = psutil.Process(client.worker_pid)
    worker.suspend()
    await client.close(0.1)
    assert not worker.is_running()


async def test_the_worker_ends_by_itself_when_the_window_is_killed(
    starter: ModelConfig, tmp_path: Path
) -> None:
    code = f"""
import asyncio, sys
from inference import *
async def main():
    client = EngineClient(WorkerConfig())
    await client.load_model(ModelConfig({starter.path!r}))
    print(client.worker_pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    worker = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [worker], 30)
    assert not alive


async def test_nothing_is_busy_while_nothing_is_asked(
    start_client: StartClient, starter: ModelConfig
) -> None:
    client = start_client()
    await events_of(client, GenerationRequest(starter, prompt="Once upon a time", sampling=GREEDY))
    worker = psutil.Process(client.worker_pid)
    await asyncio.sleep(0.5)
    before = worker.cpu_times()
    await asyncio.sleep(1)
    after = worker.cpu_times()
    # One clock tick at most; a thread that polls would have used many of the hundred.
    assert (after.user + after.system) - (before.user + before.system) <= 0.02


async def test_the_log_holds_what_the_library_said(
    start_client: StartClient, starter: ModelConfig, tmp_path: Path
) -> None:
    client = start_client()
    await client.load_model(starter)
    assert "KV buffer size" in (tmp_path / "logs" / "worker.log").read_text()
