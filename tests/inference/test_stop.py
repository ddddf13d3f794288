"""Stop: nothing is decoded after the batch that runs, and what is asked next is answered right.

Reported as nomic-ai/gpt4all#3151, #2070; ParisNeo/lollms-webui#351; oobabooga/textgen#3573: a stop that did nothing
in a long prefill, and work that went on behind a reply that was called cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.events import Event, ModelLoaded, PrefillProgress, TokenDelta
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.request import FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.conftest import TINY_KINDS, RunningEngine
from tests.inference.faulty_library import FaultyLibrary, faulty
from tests.inference.lone_run import LoneRun
from tests.inference.stored_chats import StoredChats, let_restoring_pay, request

Open = Callable[..., StoredChats]
Start = Callable[..., RunningEngine]
# Eight batches of 64 tokens at most, the last of them of one.
PROMPT = "bdgkq" * 86
ABORTED = 2
HAS_RECURRENT_STATE = ("recurrent", "hybrid")
ENDLESS = SamplingParams(temperature=1.0, seed=5, ignore_eos=True)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_batch_that_runs_is_broken_off_inside_and_none_follows(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(tiny_paths[kind])
    lone = LoneRun(request(PROMPT), chats.loaded, chats.store)
    chats.reference.begin_request()

    def stop_twice() -> None:
        lone.cancel()
        lone.cancel()

    with faulty(chats.loaded.context, 3, None, stop_twice) as library:
        run = lone.run()
        assert library.results == [0, 0, ABORTED]
    assert run.finish_reason == FinishReason.CANCELLED
    assert run.generated_ids == []
    # Recurrent state is lost with the batch.
    assert chats.ask(PROMPT).counts.reused_tokens == (0 if kind in HAS_RECURRENT_STATE else 128)


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_stop_in_a_reply_the_next_question_has_the_logits_of_a_chat_that_was_never_stopped(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool
) -> None:
    chats = open_chats(tiny_paths[kind])
    let_restoring_pay(chats.folder, chats.fingerprint)
    chats.reference.begin_request()
    question = Message("user", PROMPT)
    lone = LoneRun(request([question], sampling=ENDLESS), chats.loaded, chats.store)
    texts: list[str] = []

    def stop_soon(event: Event) -> None:
        if isinstance(event, TokenDelta):
            texts.append(event.text)
            if len(texts) == 3:
                lone.cancel()

    run = lone.run(stop_soon)
    assert run.finish_reason == FinishReason.CANCELLED
    assert run.generated_ids
    assert run.text.startswith("".join(texts))
    assert chats.store.flush(30)
    if restarts:
        chats.restart()
    reply = Message("assistant", run.text, tuple(run.generated_ids))
    on = chats.ask([question, reply, Message("user", "x")])
    assert on.counts.prefilled_tokens < 40 < len(PROMPT) < on.counts.num_prompt_tokens


@pytest.fixture
def loaded_engine(start_engine: Start, starter_path: Path) -> tuple[RunningEngine, ModelConfig]:
    """With the starter model in memory."""
    engine, model = start_engine(), ModelConfig(str(starter_path), n_ctx=4096)
    engine.load(model)
    engine.wait_for(lambda event: isinstance(event, ModelLoaded))
    return engine, model


def num_decodes_around_a_stop(
    engine: RunningEngine, library: FaultyLibrary, asked: GenerationRequest
) -> tuple[int, int, int]:
    """Decode calls that had ended when the user stopped; when that was told; and a while later.

    After the first count one may end before the stop, and one is computed meanwhile.
    """
    at_stop = len(library.results)
    engine.abort(asked.request_id)
    engine.abort(asked.request_id)
    assert engine.finished(asked.request_id).finish_reason == FinishReason.CANCELLED
    when_told = len(library.results)
    # Long enough for a batch of tokens that nobody waits for to show.
    time.sleep(0.5)
    return at_stop, when_told, len(library.results)


def test_stop_in_a_prefill_of_4000_tokens_breaks_off_the_batch_that_runs(
    loaded_engine: tuple[RunningEngine, ModelConfig],
) -> None:
    engine, model = loaded_engine
    assert engine._loaded is not None
    asked = GenerationRequest(model, prompt="The quick brown fox jumps. " * 660)
    with faulty(engine._loaded.context, fail_at=0) as library:
        engine.submit(asked)
        engine.wait_for(lambda event: isinstance(event, PrefillProgress))
        at_stop, when_told, later = num_decodes_around_a_stop(engine, library, asked)
    assert later == when_told <= at_stop + 2
    assert library.results[-1] in (0, ABORTED)
    finished = engine.finished(asked.request_id)
    assert 3900 < finished.counts.num_prompt_tokens < 4096
    assert finished.counts.prefilled_tokens <= 512 * later


def test_stop_in_a_reply_ends_it_with_the_token_that_is_computed(
    loaded_engine: tuple[RunningEngine, ModelConfig],
) -> None:
    engine, model = loaded_engine
    assert engine._loaded is not None
    asked = GenerationRequest(model, prompt="Once upon a time", sampling=ENDLESS)
    with faulty(engine._loaded.context, fail_at=0) as library:
        engine.submit(asked)
        engine.wait_for(lambda event: isinstance(event, TokenDelta) and event.num_generation_tokens > 20)
        at_stop, when_told, later = num_decodes_around_a_stop(engine, library, asked)
    assert later == when_told <= at_stop + 2
    finished = engine.finished(asked.request_id)
    told = [event for event in engine.events if isinstance(event, TokenDelta)]
    assert finished.text == "".join(delta.text for delta in told) != ""
    assert finished.token_ids == tuple(token for delta in told for token in delta.token_ids)
