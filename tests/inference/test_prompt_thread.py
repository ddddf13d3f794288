"""Prompts are built beside the inference thread: a template that takes its time keeps no other chat from its tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from inference.events import Event, ModelLoaded, PromptCounted, RequestFinished, TokenDelta
from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.metrics import KVUsage
from inference.model_config import ModelConfig
from inference.prepared_reply import PreparedReply, prepare_reply
from inference.prompt_thread import PromptThread
from inference.reply_run import ReplyRun
from inference.request import ErrorCode, FinishReason, GenerationRequest, RequestId
from inference.sampling_params import SamplingParams
from inference.scheduler import Scheduler
from tests.inference.conftest import RunningEngine
from tests.tiny_models import CHATML, TinyModel, write_llama

Start = Callable[..., RunningEngine]
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ENDLESS = SamplingParams(temperature=0.0, max_tokens=10**6, ignore_eos=True)
GREEDY = SamplingParams(temperature=0.0, max_tokens=4)
# Rendering is given three seconds, and a tiny model's token takes about a millisecond.
MANY = 50


@pytest.fixture
def tiny(tiny_paths: dict[str, Path]) -> ModelConfig:
    return ModelConfig(str(tiny_paths["gqa"]), n_ctx=16384, n_threads=1)


def chat(model: ModelConfig, template: str | None = None) -> GenerationRequest:
    return GenerationRequest(
        model, messages=(Message("user", "hello"),), chat_template=template, sampling=GREEDY
    )


def num_written(engine: RunningEngine, request_id: RequestId) -> int:
    deltas = (e for e in list(engine.events) if isinstance(e, TokenDelta) and e.request_id == request_id)
    return sum(len(delta.token_ids) for delta in deltas)


def start_writing(engine: RunningEngine, model: ModelConfig) -> RequestId:
    endless = GenerationRequest(model, prompt="xyz", sampling=ENDLESS)
    engine.submit(endless)
    engine.wait_for(lambda event: isinstance(event, TokenDelta))
    return endless.request_id


def test_a_template_that_runs_away_ends_its_own_chat_while_another_is_written(
    start_engine: Start, tiny: ModelConfig
) -> None:
    engine = start_engine()
    writing = start_writing(engine, tiny)
    before = num_written(engine, writing)
    looping = chat(tiny, LOOPS)
    engine.submit(looping)
    failed = engine.failed(looping.request_id)
    assert num_written(engine, writing) - before > MANY
    assert failed.code is ErrorCode.TEMPLATE_FAILED
    assert "did not finish" in failed.message
    # Whoever came behind it is answered beside the one that is still being written.
    after = chat(tiny)
    engine.submit(after)
    engine.finished(after.request_id)
    engine.abort(writing)
    assert engine.finished(writing).finish_reason is FinishReason.CANCELLED


def test_counting_keeps_nobody_from_writing(start_engine: Start, tiny: ModelConfig) -> None:
    engine = start_engine()
    writing = start_writing(engine, tiny)
    before = num_written(engine, writing)
    looping, counted = chat(tiny, LOOPS), chat(tiny)
    engine.count(looping)
    engine.count(counted)
    assert engine.failed(looping.request_id).code is ErrorCode.TEMPLATE_FAILED
    assert num_written(engine, writing) - before > MANY
    engine.wait_for(lambda event: isinstance(event, PromptCounted) and event.request_id == counted.request_id)


def test_a_reply_is_stopped_while_its_prompt_is_being_built(start_engine: Start, tiny: ModelConfig) -> None:
    engine = start_engine()
    engine.load(tiny)
    engine.wait_for(lambda event: isinstance(event, ModelLoaded))
    looping, behind = chat(tiny, LOOPS), chat(tiny)
    engine.submit(looping)
    engine.submit(behind)
    engine.abort(looping.request_id)
    engine.abort(behind.request_id)
    for request in (looping, behind):
        finished = engine.finished(request.request_id)
        assert finished.finish_reason is FinishReason.CANCELLED
        assert finished.counts.num_prompt_tokens == 0
    next_one = chat(tiny)
    engine.submit(next_one)
    engine.finished(next_one.request_id)


def test_a_model_is_kept_until_no_prompt_is_built_with_it(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_template = CHATML.replace("assistant", "an assistant of another model")
    other = ModelConfig(str(write_llama(tmp_path / "other.gguf", TinyModel(chat_template=other_template))))
    engine = start_engine()
    used_when_closed: list[bool] = []
    close = LoadedModel.close

    def note_and_close(loaded: LoadedModel) -> None:
        used_when_closed.append(engine._prompts.is_busy)
        close(loaded)

    engine.load(tiny)
    engine.wait_for(lambda event: isinstance(event, ModelLoaded))
    monkeypatch.setattr(LoadedModel, "close", note_and_close)
    looping, behind_switch = chat(tiny, LOOPS), chat(other)
    engine.submit(looping)
    engine.count(chat(tiny))
    # Its stop leaves nobody who waits for a reply, only a prompt that is being built.
    engine.abort(looping.request_id)
    engine.load(other)
    engine.submit(behind_switch)
    finished = engine.finished(behind_switch.request_id)
    assert used_when_closed == [False]
    first = chat(tiny)
    engine.submit(first)
    # Each was built with the template of the model that it was for.
    num_more = finished.counts.num_prompt_tokens - engine.finished(first.request_id).counts.num_prompt_tokens
    assert num_more > 10


# --- without an engine ----------------------------------------------------------------------------------


def test_it_builds_and_hands_out_in_the_order_it_was_asked() -> None:
    woken = threading.Event()
    thread, taken, may_go = PromptThread(woken.set), [], threading.Event()

    def take(built: Future[str]) -> None:
        taken.append(built.result())

    def first() -> str:
        may_go.wait(60)
        return "first"

    thread.build_for(first, take)
    thread.build_for(lambda: "second", take)
    thread.take_built()
    assert taken == []
    assert thread.is_busy
    may_go.set()
    while thread.is_busy:
        assert woken.wait(60)
        woken.clear()
        thread.take_built()
    assert taken == ["first", "second"]
    thread.close(wait=True)


def test_what_was_cancelled_before_its_turn_is_not_built() -> None:
    thread, may_go, built = PromptThread(lambda: None), threading.Event(), []
    thread.build(lambda: may_go.wait(60))
    cancelled = thread.build(lambda: built.append("cancelled"))
    last = thread.build(lambda: built.append("last"))
    assert cancelled.cancel()
    may_go.set()
    last.result(60)
    assert built == ["last"]
    thread.close(wait=True)
    assert not thread.is_busy


def test_a_reply_whose_prompt_is_not_ready_holds_up_nobody_and_is_no_work(
    load: Callable[..., LoadedModel], tiny_paths: dict[str, Path]
) -> None:
    loaded = load(tiny_paths["gqa"])
    events: list[Event] = []
    scheduler = Scheduler(loaded, None, events.append, lambda: KVUsage(0, 0, 0, 0, 0, 0, 0, 0))
    preparation: Future[PreparedReply] = Future()
    first, second, third = (chat(loaded.info.config) for _ in range(3))
    scheduler.submit(ReplyRun(first, loaded, None, arrived=1.0, preparation=preparation))
    scheduler.submit(ReplyRun(second, loaded, None, arrived=2.0))
    scheduler.submit(ReplyRun(third, loaded, None, arrived=3.0, preparation=Future()))

    def step_and_tell_ends() -> list[RequestId]:
        while scheduler.has_work:
            scheduler.step()
        return [event.request_id for event in events if isinstance(event, RequestFinished)]

    assert step_and_tell_ends() == [second.request_id]
    assert scheduler.has_replies
    scheduler.cancel(third.request_id)
    assert step_and_tell_ends() == [second.request_id, third.request_id]
    preparation.set_result(prepare_reply(loaded, first))
    assert step_and_tell_ends() == [second.request_id, third.request_id, first.request_id]
    assert not scheduler.has_replies


def test_the_sampler_of_a_reply_that_ended_meanwhile_is_closed(
    load: Callable[..., LoadedModel], tiny_paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Sampler] = []
    close = Sampler.close
    monkeypatch.setattr(Sampler, "close", lambda sampler: (closed.append(sampler), close(sampler)))
    loaded = load(tiny_paths["gqa"])
    request = chat(loaded.info.config)
    preparation: Future[PreparedReply] = Future()
    preparation.set_running_or_notify_cancel()
    run = ReplyRun(request, loaded, None, arrived=0.0, preparation=preparation)
    assert not run.is_prepared
    run.close()
    preparation.set_result(prepared := prepare_reply(loaded, request))
    assert closed == [prepared.sampler]
