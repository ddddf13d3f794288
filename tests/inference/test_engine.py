"""The engine on its thread: order of events, counters, cancelling, refusals."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.events import (
    EngineStats,
    ModelLoaded,
    ModelLoadFailed,
    Phase,
    PhaseChanged,
    PrefillProgress,
    RequestFailed,
    RequestFinished,
    StoreNotice,
    TokenDelta,
)
from inference.loaded_model import MAX_SEQUENCES
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.request import ErrorCode, FinishReason, GenerationRequest, ReadAhead
from inference.sampling_params import SamplingParams
from tests.inference.conftest import RunningEngine

Start = Callable[..., RunningEngine]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


@pytest.fixture
def tiny(tiny_paths: dict[str, Path]) -> ModelConfig:
    return ModelConfig(str(tiny_paths["gqa"]), n_ctx=1024, n_threads=1)


@pytest.fixture
def starter(starter_path: Path) -> ModelConfig:
    return ModelConfig(str(starter_path))


def raw(model: ModelConfig, prompt: str, sampling: SamplingParams = GREEDY) -> GenerationRequest:
    return GenerationRequest(model, prompt=prompt, sampling=sampling)


def test_a_request_loads_its_model_and_tells_each_phase_in_order(
    start_engine: Start, tiny: ModelConfig
) -> None:
    engine = start_engine()
    request = raw(tiny, "xyz")
    engine.submit(request)
    finished = engine.finished(request.request_id)
    phases = [event.phase for event in engine.events if isinstance(event, PhaseChanged)]
    assert phases == [Phase.LOADING, Phase.PREFILL, Phase.DECODE]
    assert any(isinstance(event, ModelLoaded) for event in engine.events)
    assert finished.timings.load_s > 0


def test_deltas_join_to_the_text_and_ids_of_the_reply(start_engine: Start, starter: ModelConfig) -> None:
    engine = start_engine()
    request = GenerationRequest(
        starter,
        messages=(Message("user", "Count to five."),),
        sampling=SamplingParams(temperature=0.0, max_tokens=40),
    )
    engine.submit(request)
    finished = engine.finished(request.request_id)
    deltas = [event for event in engine.events if isinstance(event, TokenDelta)]
    assert "".join(delta.text for delta in deltas) == finished.text != ""
    assert tuple(token for delta in deltas for token in delta.token_ids) == finished.token_ids
    assert [delta.num_generation_tokens for delta in deltas] == sorted(
        d.num_generation_tokens for d in deltas
    )
    assert deltas[0].ttft_s == finished.timings.ttft_s
    assert finished.num_generation_tokens == len(finished.token_ids)


def test_prefill_progress_counts_tokens_handed_to_decode(start_engine: Start, tiny: ModelConfig) -> None:
    engine = start_engine()
    request = raw(tiny, "x" * 600)
    engine.submit(request)
    finished = engine.finished(request.request_id)
    progress = [event for event in engine.events if isinstance(event, PrefillProgress)]
    assert [event.num_prefilled_tokens for event in progress] == [512, 599, 600]
    assert {event.num_tokens_to_prefill for event in progress} == {600}
    assert finished.counts == progress[-1].counts


def test_the_next_turn_decodes_new_text_and_glue_only(start_engine: Start, starter: ModelConfig) -> None:
    # Reported as abetlen/llama-cpp-python#1369: the saved prefix ended at the previous prompt.
    engine = start_engine()
    sampling = SamplingParams(temperature=1.0, seed=7, max_tokens=200)
    messages = [Message("user", "Tell me a long story about a river.")]
    for turn in range(3):
        request = GenerationRequest(starter, messages=tuple(messages), sampling=sampling)
        engine.submit(request)
        finished = engine.finished(request.request_id)
        if turn:
            # "<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n" is 14 tokens; where the
            # reply was cut at max_tokens, its last token was sampled but not decoded.
            assert finished.counts.prefilled_tokens <= 15
            assert (
                finished.counts.reused_tokens
                == finished.counts.num_prompt_tokens - finished.counts.prefilled_tokens
            )
        messages += [Message("assistant", finished.text, finished.token_ids), Message("user", "Go on.")]


def test_a_reply_tokenised_otherwise_is_reused_up_to_the_first_differing_id(
    start_engine: Start, tiny: ModelConfig
) -> None:
    engine = start_engine()
    first = raw(tiny, "xyzxyz" + "hell")
    engine.submit(first)
    engine.finished(first.request_id)
    # "hello" is one token, "hell" another: the common prefix ends before it.
    second = raw(tiny, "xyzxyz" + "hello" + "abc")
    engine.submit(second)
    counts = engine.finished(second.request_id).counts
    assert (counts.reused_tokens, counts.prefilled_tokens) == (6, 4)


def test_stop_in_the_middle_of_a_long_prefill_ends_it_within_one_batch(
    start_engine: Start, starter: ModelConfig
) -> None:
    # Reported as nomic-ai/gpt4all#3151, #2070; ParisNeo/lollms-webui#351; oobabooga/textgen#3573.
    engine = start_engine()
    request = raw(starter, "The quick brown fox jumps. " * 600)
    engine.submit(request)
    engine.wait_for(lambda event: isinstance(event, PrefillProgress))
    engine.abort(request.request_id)
    engine.abort(request.request_id)
    finished = engine.finished(request.request_id)
    assert finished.finish_reason == FinishReason.CANCELLED
    assert finished.counts.prefilled_tokens < finished.counts.num_prompt_tokens
    progress = [event for event in engine.events if isinstance(event, PrefillProgress)]
    assert finished.counts.prefilled_tokens - progress[-1].num_prefilled_tokens <= 512
    again = raw(starter, "The quick brown fox jumps. " * 20)
    engine.submit(again)
    after_stop = engine.finished(again.request_id)
    fresh = start_engine()
    fresh.submit(again)
    assert after_stop.token_ids == fresh.finished(again.request_id).token_ids


def test_stop_in_the_middle_of_a_reply_keeps_what_was_written(
    start_engine: Start, starter: ModelConfig
) -> None:
    engine = start_engine()
    endless = raw(starter, "Once upon a time", SamplingParams(temperature=0.0))
    engine.submit(endless)
    engine.wait_for(lambda event: isinstance(event, TokenDelta))
    engine.abort(endless.request_id)
    finished = engine.finished(endless.request_id)
    assert finished.finish_reason == FinishReason.CANCELLED
    assert finished.token_ids
    continued = raw(starter, "Once upon a time" + finished.text)
    engine.submit(continued)
    assert engine.finished(continued.request_id).finish_reason == FinishReason.LENGTH


def test_a_waiting_request_is_cancelled_without_being_read(start_engine: Start, tiny: ModelConfig) -> None:
    engine = start_engine()
    endless = SamplingParams(temperature=1.0, seed=3)
    running = [raw(tiny, f"{number} Once upon a time", endless) for number in range(MAX_SEQUENCES)]
    waiting = raw(tiny, "Never read")
    for request in (*running, waiting):
        engine.submit(request)
    engine.wait_for(lambda event: isinstance(event, TokenDelta))
    for request in (waiting, *running):
        engine.abort(request.request_id)
    assert engine.finished(waiting.request_id).finish_reason == FinishReason.CANCELLED
    assert engine.finished(waiting.request_id).counts.prefilled_tokens == 0
    for request in running:
        engine.finished(request.request_id)


def test_requests_are_answered_in_the_order_they_came(start_engine: Start, tiny: ModelConfig) -> None:
    engine = start_engine()
    requests = [raw(tiny, text) for text in ("abc", "def", "ghi")]
    for request in requests:
        engine.submit(request)
    for request in requests:
        engine.finished(request.request_id)
    ended = [event.request_id for event in engine.events if isinstance(event, RequestFinished)]
    assert ended == [request.request_id for request in requests]


@pytest.mark.parametrize("num_tokens", [85, 510, 511, 512])
def test_a_prompt_that_fits_is_answered_with_what_the_context_still_holds(
    start_engine: Start, tiny_paths: dict[str, Path], num_tokens: int
) -> None:
    # Reported as abetlen/llama-cpp-python#462, run-llama/llama_index#8046.
    engine = start_engine()
    config = ModelConfig(str(tiny_paths["mha"]), n_ctx=512, n_threads=1)
    request = raw(config, "x" * num_tokens, SamplingParams(temperature=1.0, seed=1, max_tokens=4096))
    engine.submit(request)
    finished = engine.finished(request.request_id)
    if finished.finish_reason == FinishReason.CONTEXT:
        # The last sampled token needs no cell of its own.
        assert finished.num_generation_tokens == 512 - num_tokens + 1
    else:
        assert finished.finish_reason == FinishReason.STOP


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(
    start_engine: Start, tiny_paths: dict[str, Path]
) -> None:
    engine = start_engine()
    request = raw(ModelConfig(str(tiny_paths["mha"]), n_ctx=512, n_threads=1), "x" * 513)
    engine.submit(request)
    failed = engine.failed(request.request_id)
    assert failed.code == ErrorCode.PROMPT_TOO_LONG
    assert "513" in failed.message
    assert "512" in failed.message


def test_a_seed_gives_the_same_reply_and_no_seed_another_one(
    start_engine: Start, starter: ModelConfig
) -> None:
    engine = start_engine()
    seeds: list[int] = []
    replies: list[tuple[int, ...]] = []
    for seed in (5, 5, None, None):
        sampling = SamplingParams(temperature=1.5, seed=seed, min_p=0.0, max_tokens=16)
        request = raw(starter, "Once upon a time", sampling)
        engine.submit(request)
        finished = engine.finished(request.request_id)
        seeds.append(finished.seed)
        replies.append(finished.token_ids)
    assert seeds[:2] == [5, 5]
    assert len(set(seeds)) == 3
    assert replies[0] == replies[1]
    assert len(set(replies)) == 3


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, ErrorCode.MODEL_NOT_FOUND),
        (b"", ErrorCode.MODEL_INVALID),
        (b"<!DOCTYPE html><html></html>", ErrorCode.MODEL_INVALID),
        (b"just text", ErrorCode.MODEL_INVALID),
        (b"half", ErrorCode.MODEL_INVALID),
    ],
    ids=["missing", "empty", "web page", "text", "cut in half"],
)
def test_a_file_that_is_no_model_is_refused_and_the_next_request_is_answered(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path, content: bytes | None, code: ErrorCode
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        whole = Path(tiny.path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content == b"half" else content)
    engine = start_engine()
    refused, good = raw(ModelConfig(str(path)), "x"), raw(tiny, "x")
    engine.submit(refused)
    engine.submit(good)
    failed = engine.failed(refused.request_id)
    assert failed.code == code
    assert "\n" not in failed.message
    assert any(isinstance(event, ModelLoadFailed) and event.code == code for event in engine.events)
    engine.finished(good.request_id)


def test_a_directory_is_no_model(start_engine: Start, tmp_path: Path) -> None:
    engine = start_engine()
    request = raw(ModelConfig(str(tmp_path)), "x")
    engine.submit(request)
    assert engine.failed(request.request_id).code == ErrorCode.MODEL_INVALID


def test_asking_for_more_layers_than_there_are_gpus_reports_what_was_really_offloaded(
    start_engine: Start, tiny_paths: dict[str, Path]
) -> None:
    engine = start_engine()
    engine.load(ModelConfig(str(tiny_paths["mha"]), n_ctx=256, n_gpu_layers=99))
    loaded = engine.wait_for(lambda event: isinstance(event, ModelLoaded))
    assert isinstance(loaded, ModelLoaded)
    assert loaded.info.n_layers == 3
    assert (loaded.info.layers_offloaded > 0) == (loaded.info.backend != "CPU")


def test_kv_figures_are_bytes_that_the_library_and_the_store_report(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path
) -> None:
    engine = start_engine(kv_store=tmp_path / "kv")
    request = raw(tiny, "x" * 100)
    engine.submit(request)
    finished = engine.finished(request.request_id)
    assert 0 < finished.kv.used_bytes <= finished.kv.allocated_bytes
    engine.close()
    on_disk = sum(path.stat().st_size for path in (tmp_path / "kv").rglob("*.kv"))
    last = [event for event in engine.events if not isinstance(event, RequestFailed)][-1]
    assert last.kv.store_bytes == on_disk > 0  # type: ignore[union-attr]
    assert last.kv.bytes_written == on_disk  # type: ignore[union-attr]


def test_a_store_that_cannot_be_opened_is_told_and_chats_go_on(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path
) -> None:
    (tmp_path / "kv").write_text("a file where the folder should be")
    engine = start_engine(kv_store=tmp_path / "kv")
    request = raw(tiny, "x")
    engine.submit(request)
    engine.finished(request.request_id)
    notices = [event.message for event in engine.events if isinstance(event, StoreNotice)]
    assert len(notices) == 1
    assert "cannot be used" in notices[0]


def test_the_budget_may_be_smaller_than_one_chat(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path
) -> None:
    engine = start_engine(kv_store=tmp_path, store_budget_bytes=1000)
    for _ in range(2):
        request = raw(tiny, "x" * 300)
        engine.submit(request)
        assert engine.finished(request.request_id).finish_reason == FinishReason.LENGTH
    engine.close()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 1000


def test_the_size_of_the_store_is_told_as_soon_as_the_turn_is_on_disk(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path
) -> None:
    engine = start_engine(kv_store=tmp_path)
    engine.submit(raw(tiny, "x" * 100))
    engine.wait_for(lambda event: isinstance(event, EngineStats) and event.kv.store_bytes > 0)


def test_a_file_that_is_no_model_leaves_the_loaded_one_where_it_is(
    start_engine: Start, tiny: ModelConfig, tmp_path: Path
) -> None:
    engine = start_engine()
    first, again = raw(tiny, "xyzxyz"), raw(tiny, "xyzxyzabc")
    engine.submit(first)
    engine.load(ModelConfig(str(tmp_path / "missing.gguf")))
    engine.submit(again)
    assert engine.finished(again.request_id).counts.reused_tokens == 6
    told = [event for event in engine.events if isinstance(event, ModelLoaded | ModelLoadFailed)]
    assert [type(event) for event in told] == [ModelLoaded, ModelLoadFailed, ModelLoaded]


def test_a_file_that_is_no_model_is_refused_while_a_reply_is_written(
    start_engine: Start, starter: ModelConfig, tmp_path: Path
) -> None:
    engine = start_engine(None)
    (tmp_path / "notes.gguf").write_text("no model")
    request = raw(starter, "The", SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True))
    engine.submit(request)
    engine.wait_for(lambda event: isinstance(event, TokenDelta))
    engine.load(ModelConfig(str(tmp_path / "notes.gguf")))
    engine.wait_for(lambda event: isinstance(event, ModelLoadFailed))
    assert not any(isinstance(event, RequestFinished) for event in engine.events)
    assert engine.finished(request.request_id).num_generation_tokens == 400


def test_a_draft_is_read_while_it_is_typed(start_engine: Start, starter: ModelConfig) -> None:
    engine = start_engine()
    engine.load(starter)
    draft = "The river bends twice before it meets the old mill, " * 12
    words = draft.split(" ")
    # As the window sends it: the last word may still change.
    for end in (40, 80, len(words) - 1):
        typed = Message("user", " ".join(words[:end]))
        engine.prefetch(GenerationRequest(starter, messages=(typed,)), ReadAhead.WORDS)
    request = GenerationRequest(starter, messages=(Message("user", draft + "and then?"),), sampling=GREEDY)
    wait_until_idle(engine)
    engine.submit(request)
    counts = engine.finished(request.request_id).counts
    assert counts.reused_tokens >= 0.9 * counts.num_prompt_tokens
    assert counts.prefilled_tokens <= 16


def wait_until_idle(engine: RunningEngine) -> None:
    """Until everything that was asked for before is done."""
    told = len(engine.events)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        scheduler = engine._scheduler
        is_building = engine._waiting or engine._prompts.is_busy
        if not is_building and scheduler is not None and not scheduler.has_work:
            return
        time.sleep(0.01)
    raise AssertionError(engine.events[told:])
