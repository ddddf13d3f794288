"""The context is full: refused, cut or ended, but never in silence. Cases 21, 22 and 24."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from inference.context_fit import fit_prompt
from inference.events import PromptCounted, RequestFailed, RequestFinished
from inference.kvcache.block_store import BlockStore
from inference.llama.context import ContextParams
from inference.loaded_model import LoadedModel
from inference.messages import Message, TokenId
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import (
    ContextPolicy,
    ContextRule,
    EngineError,
    ErrorCode,
    FinishReason,
    GenerationRequest,
)
from inference.sampling_params import SamplingParams
from tests.inference.conftest import TINY_KINDS, RunningEngine
from tests.inference.lone_run import LoneRun, run_alone

Load = Callable[..., LoadedModel]
DROP = ContextRule(ContextPolicy.DROP_OLDEST)
N_CTX = 512


def greedy(max_tokens: int | None = None, **more: object) -> SamplingParams:
    return replace(SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True), **more)  # type: ignore[arg-type]


def request(*messages: Message, max_tokens: int | None = None, **more: object) -> GenerationRequest:
    asked = GenerationRequest(ModelConfig("unused"), messages=messages, sampling=greedy(max_tokens))
    return replace(asked, **more)  # type: ignore[arg-type]


def prompt_of(loaded: LoadedModel, num_tokens: int) -> Message:
    """A user message whose whole prompt has so many tokens: in the tiny models "z" is one."""
    frame = len(loaded.prompt_builder.build(request(Message("user", "z"))).token_ids) - 1
    return Message("user", "z" * (num_tokens - frame))


def finished(run: LoneRun) -> RequestFinished:
    run.run()
    [event] = [event for event in run.events if isinstance(event, RequestFinished)]
    return event


def refusal(run: LoneRun) -> RequestFailed:
    with pytest.raises(EngineError):
        run.run()
    [event] = [event for event in run.events if isinstance(event, RequestFailed)]
    return event


# --- case 21 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tokens", [85, 510, 511, 512])
def test_a_prompt_that_fits_is_answered_as_far_as_there_is_room(
    load: Load, tiny_paths: dict[str, Path], num_tokens: int
) -> None:
    loaded = load(tiny_paths["mqa"], n_ctx=N_CTX)
    end = finished(LoneRun(request(prompt_of(loaded, num_tokens), max_tokens=4096), loaded, None))
    assert end.counts.num_prompt_tokens == num_tokens
    assert end.finish_reason == FinishReason.CONTEXT
    # The last token that is sampled needs no row.
    assert end.num_generation_tokens == N_CTX - num_tokens + 1


@pytest.mark.parametrize("rule", [ContextRule(), DROP])
def test_a_message_larger_than_the_context_is_refused_with_both_sizes(
    load: Load, tiny_paths: dict[str, Path], rule: ContextRule
) -> None:
    loaded = load(tiny_paths["mqa"], n_ctx=N_CTX)
    before = (Message("user", "hello"), Message("assistant", "you"))
    asked = request(*before, prompt_of(loaded, 513), context=rule)
    refused = refusal(LoneRun(asked, loaded, None))
    assert refused.message.startswith("this message is 513 tokens, the context holds 512: ")
    assert refused.code == ErrorCode.PROMPT_TOO_LONG
    assert refused.fit is not None
    assert not refused.fit.is_possible


def test_a_chat_that_is_one_token_too_long_is_refused_with_what_leaving_out_would_do(
    load: Load, tiny_paths: dict[str, Path]
) -> None:
    loaded = load(tiny_paths["mqa"], n_ctx=N_CTX)
    before = [Message("user", "z" * 100), Message("assistant", "z" * 100)]
    used = len(loaded.prompt_builder.build(request(*before, Message("user", ""))).token_ids)
    event = refusal(LoneRun(request(*before, Message("user", "z" * (513 - used))), loaded, None))
    assert event.message.startswith("the chat is 513 tokens, the context holds 512: ")
    assert event.fit is not None
    assert (event.fit.num_prompt_tokens, event.fit.n_ctx, event.fit.left_out) == (513, 512, (0, 1))
    assert event.fit.is_possible


# --- case 22 ------------------------------------------------------------------------------------------


def text_of(loaded: LoadedModel, token_ids: list[TokenId]) -> str:
    return b"".join(map(loaded.model.vocab.written_piece, token_ids)).decode("utf-8", "replace")


def test_the_system_prompt_is_among_the_sent_ids_however_long_the_chat_is(
    load: Load, tiny_paths: dict[str, Path]
) -> None:
    loaded = load(tiny_paths["mqa"], n_ctx=N_CTX)
    chat = [Message("system", "The phrase is blue heron seven.")]
    for number in range(30):
        chat += [Message("user", f"filler {number} " * 5), Message("assistant", f"noted {number}")]
    chat.append(Message("user", "What is the phrase?"))
    asked = request(*chat, max_tokens=2, context=replace(DROP, pinned=(3,)))
    assert len(loaded.prompt_builder.build(asked).token_ids) > 3 * N_CTX
    run = LoneRun(asked, loaded, None)
    end = finished(run)
    sent = text_of(loaded, run.reply.token_ids)
    assert "The phrase is blue heron seven." in sent
    assert "filler 1 " in sent  # pinned
    assert "filler 0 " not in sent
    assert "What is the phrase?" in sent
    assert end.fit is not None
    assert {0, 3, len(chat) - 1}.isdisjoint(end.fit.left_out)
    assert end.fit.num_sent_tokens == end.counts.num_prompt_tokens <= N_CTX
    seen = [index for index in range(len(chat)) if index not in end.fit.left_out]
    assert sent.count("<|im_start|>") == len(seen) + 1
    assert len(end.message_ids) == len(chat)


def test_turns_behind_a_cut_extend_what_is_in_memory(load: Load, tiny_paths: dict[str, Path]) -> None:
    loaded = load(tiny_paths["mqa"], n_ctx=N_CTX)
    chat: list[Message] = [Message("system", "Be brief.")]
    cut, read_again = 0, []
    for number in range(24):
        chat.append(Message("user", f"question {number} and a few words"))
        run = run_alone(request(*chat, max_tokens=8, context=replace(DROP, former_cut=cut)), loaded, None)
        assert run.fit is not None
        new = run.num_prompt_tokens - run.reused_tokens
        read_again.append((run.fit.cut != cut, new))
        cut = run.fit.cut
        chat.append(Message("assistant", run.text, tuple(run.generated_ids)))
    moved = [new for has_moved, new in read_again if has_moved]
    stayed = [new for has_moved, new in read_again if not has_moved]
    assert 1 <= len(moved) <= 6
    assert max(stayed[1:]) < 60 < min(moved)


# --- case 24 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_an_unlimited_reply_ends_when_the_context_is_full(
    load: Load, tiny_paths: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    check_that_it_ends(load(tiny_paths[kind], n_ctx=256), tmp_path)


def test_an_unlimited_reply_ends_with_a_quantised_cache_too(
    tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    q8_0 = 8
    params = ContextParams(n_ctx=256, n_threads=1, type_k=q8_0, type_v=q8_0)
    loaded = LoadedModel(ModelConfig(str(tiny_paths["mqa"])), None, lambda _fraction: True, params)
    try:
        check_that_it_ends(loaded, tmp_path)
    finally:
        loaded.close()


def check_that_it_ends(loaded: LoadedModel, tmp_path: Path) -> None:
    store = BlockStore(tmp_path, 10**9, on_notice=pytest.fail)
    run = LoneRun(request(Message("user", "hello you")), loaded, store)
    end = finished(run)
    store.close(30)
    assert end.finish_reason == FinishReason.CONTEXT
    assert len(run.reply.token_ids) == 256 + 1
    # Nothing was shifted: what memory holds is what was read and written, from the first token on.
    assert run.reply.sequence is not None
    assert run.reply.sequence.token_ids == run.reply.token_ids[:256]


# --- continuing ---------------------------------------------------------------------------------------


def begun_by(run: ReplyRun) -> Message:
    return Message("assistant", run.text, tuple(run.generated_ids))


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_reply_goes_on_as_if_it_had_never_been_cut_and_reads_one_token(
    load: Load, tiny_paths: dict[str, Path], kind: str
) -> None:
    loaded = load(tiny_paths[kind], n_ctx=N_CTX)
    asked = request(Message("user", "hello you"), max_tokens=40)
    whole = run_alone(asked, load(tiny_paths[kind], n_ctx=N_CTX), None)
    first = run_alone(replace(asked, sampling=greedy(15)), loaded, None)
    again = replace(asked, sampling=greedy(25), begun=begun_by(first))
    end = finished(LoneRun(again, loaded, None))
    assert end.token_ids == tuple(whole.generated_ids)
    assert end.text == whole.text
    assert end.num_generation_tokens == 25
    assert end.counts.prefilled_tokens == 1


def test_penalties_see_what_the_reply_said_before(load: Load, tiny_paths: dict[str, Path]) -> None:
    sampling = SamplingParams(temperature=0.0, ignore_eos=True, repeat_penalty=1.9, penalty_last_n=64)
    asked = replace(request(Message("user", "hello you")), sampling=replace(sampling, max_tokens=30))
    whole = run_alone(asked, load(tiny_paths["gqa"], n_ctx=N_CTX), None)
    loaded = load(tiny_paths["gqa"], n_ctx=N_CTX)
    first = run_alone(replace(asked, sampling=replace(sampling, max_tokens=9)), loaded, None)
    again = replace(asked, sampling=replace(sampling, max_tokens=21), begun=begun_by(first))
    assert finished(LoneRun(again, loaded, None)).token_ids == tuple(whole.generated_ids)


def test_a_stop_string_across_the_border_is_found(load: Load, tiny_paths: dict[str, Path]) -> None:
    loaded = load(tiny_paths["gqa"], n_ctx=N_CTX)
    asked = request(Message("user", "hello you"), max_tokens=60)
    whole = run_alone(asked, loaded, None).text
    for num_first in range(4, 30):
        first = run_alone(replace(asked, sampling=greedy(num_first)), loaded, None).text
        at = len(first)
        stop = whole[at - 1 : at + 1]
        if at > 1 and len(stop) == 2 and whole.find(stop) == at - 1:
            break
    else:
        pytest.fail("the model writes no text for this test")
    sampling = greedy(60, stop=(stop,))
    begun = run_alone(replace(asked, sampling=replace(sampling, max_tokens=num_first)), loaded, None)
    assert begun.text == first
    run = LoneRun(replace(asked, sampling=sampling, begun=begun_by(begun)), loaded, None)
    end = finished(run)
    assert (end.finish_reason, end.text) == (FinishReason.STOP, whole[: at - 1])


def test_a_reply_without_ids_goes_on_behind_its_text(load: Load, tiny_paths: dict[str, Path]) -> None:
    loaded = load(tiny_paths["gqa"], n_ctx=N_CTX)
    run = LoneRun(
        request(Message("user", "hello"), max_tokens=3, begun=Message("assistant", "the hello")), loaded, None
    )
    end = finished(run)
    assert text_of(loaded, run.reply.token_ids).split("assistant\n")[1].startswith("the hello")
    assert end.text.startswith("the hello")
    assert len(end.token_ids) == loaded_ids(loaded, "the hello") + 3


def loaded_ids(loaded: LoadedModel, text: str) -> int:
    return len(loaded.model.vocab.tokenize_inside(text, parse_special=False))


def test_reasoning_that_was_cut_goes_on_as_reasoning(load: Load, tiny_paths: dict[str, Path]) -> None:
    loaded = load(tiny_paths["gqa"], n_ctx=N_CTX)
    vocab = loaded.model.vocab
    ids = tuple(vocab.tokenize_inside("<think>\nhello you</think>the", parse_special=False))
    asked = request(Message("user", "hello"), max_tokens=3)
    end = finished(LoneRun(replace(asked, begun=Message("assistant", "the", ids)), loaded, None))
    assert end.token_ids[: len(ids)] == ids
    assert end.text.startswith("the")
    assert end.reasoning is not None
    assert end.reasoning.text == "hello you"
    inside = tuple(vocab.tokenize_inside("<think>\nhello", parse_special=False))
    cut = finished(LoneRun(replace(asked, begun=Message("assistant", "", inside)), loaded, None))
    assert cut.text == ""
    assert cut.reasoning is not None
    assert cut.reasoning.text.startswith("hello")


def test_a_reply_that_filled_the_context_goes_on_when_turns_may_be_left_out(
    load: Load, tiny_paths: dict[str, Path]
) -> None:
    loaded = load(tiny_paths["gqa"], n_ctx=N_CTX)
    chat = [Message("user", "z" * 200), Message("assistant", "z" * 150), Message("user", "hello")]
    full = run_alone(request(*chat), loaded, None)
    assert full.finish_reason == FinishReason.CONTEXT
    again = request(*chat, max_tokens=5, begun=begun_by(full))
    with pytest.raises(EngineError, match="513 tokens"):
        run_alone(again, loaded, None)
    end = finished(LoneRun(replace(again, context=DROP), loaded, None))
    assert end.fit is not None
    assert end.fit.left_out == (0, 1)
    assert end.token_ids[:-5] == tuple(full.generated_ids)


# --- counting -----------------------------------------------------------------------------------------


def test_counting_is_answered_between_two_steps_of_a_running_reply(
    start_engine: Callable[..., RunningEngine], tiny_paths: dict[str, Path]
) -> None:
    engine = start_engine()
    config = ModelConfig(str(tiny_paths["gqa"]), n_ctx=4096, n_threads=1)
    running = replace(request(Message("user", "hello"), model=config), sampling=greedy())
    engine.submit(running)
    engine.wait_for(lambda event: getattr(event, "request_id", None) == running.request_id)
    # A load that has to wait for the reply does not hold the count up.
    engine.load(replace(config, n_ctx=2048))
    asked = request(Message("user", "hello you"), model=config)
    engine.count(asked)
    counted = engine.wait_for(lambda event: isinstance(event, PromptCounted))
    assert isinstance(counted, PromptCounted)
    assert not any(isinstance(event, RequestFinished) for event in engine.events)
    engine.abort(running.request_id)
    engine.finished(running.request_id)
    engine.wait_for(lambda event: getattr(getattr(event, "info", None), "n_ctx", 0) == 2048)
    assert engine._loaded is not None
    prompt = fit_prompt(engine._loaded.prompt_builder, asked, engine._loaded.context_size).prompt
    assert (counted.fit.num_prompt_tokens, counted.fit.n_ctx) == (len(prompt.token_ids), 4096)
    # It was asked for another model than the one that is loaded now.
    late = request(Message("user", "hello you"), model=config)
    engine.count(late)
    assert engine.failed(late.request_id).code == ErrorCode.MODEL_NOT_LOADED
