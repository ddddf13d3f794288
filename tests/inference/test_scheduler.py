"""Many chats in one context: nobody waits for long, nobody's rows become another's, no cell is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.events import (
    Event,
    Phase,
    PhaseChanged,
    PrefillProgress,
    RequestFailed,
    RequestFinished,
    TokenDelta,
)
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.llama.context import ContextParams
from inference.llama.sequence import BatchPart
from inference.loaded_model import LoadedModel
from inference.metrics import KVUsage
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import EngineError, ErrorCode, FinishReason, GenerationRequest, ReadAhead, RequestId
from inference.sampling_params import SamplingParams
from inference.scheduler import Scheduler
from inference.type_ahead import TypeAhead
from tests.inference.conftest import TINY_KINDS
from tests.inference.own_rows import OwnRows

N_UBATCH = 64


class Chats:
    """A scheduler whose batches and events are kept."""

    def __init__(self, path: Path, folder: Path, *, n_ctx: int = 2048, n_seq: int = 4) -> None:
        params = ContextParams(n_ctx=n_ctx, n_ubatch=N_UBATCH, n_seq=n_seq)
        config = ModelConfig(str(path), n_threads=1)
        self.loaded = LoadedModel(
            config, ModelDigests(folder / "digests.json"), lambda _fraction: True, params
        )
        self.store = BlockStore(folder / "kv", 10**9, on_notice=pytest.fail)
        self.events: list[Event] = []
        self.batches: list[list[BatchPart]] = []
        self.runs: dict[RequestId, ReplyRun] = {}
        self.scheduler = Scheduler(
            self.loaded, self.store, self._note, lambda: KVUsage(0, 0, 0, 0, 0, 0, 0, 0)
        )
        self.on_event: Callable[[Event], None] = lambda event: None
        decode = self.loaded.context.decode

        def noted(parts: list[BatchPart]) -> None:
            self.batches.append(list(parts))
            decode(parts)

        self.loaded.context.decode = noted  # type: ignore[method-assign,assignment]

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def submit(
        self, prompt: str, max_tokens: int = 20, *, is_private: bool = False, is_aside: bool = False
    ) -> RequestId:
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        request = GenerationRequest(
            ModelConfig("unused"),
            prompt=prompt,
            sampling=sampling,
            is_private=is_private,
            is_aside=is_aside,
        )
        run = ReplyRun(request, self.loaded, self.store, arrived=float(len(self.runs)))
        self.runs[request.request_id] = run
        self.scheduler.submit(run)
        return request.request_id

    def finish(self) -> None:
        while self.scheduler.has_replies:
            self.scheduler.step()

    def step_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            assert self.scheduler.has_replies
            self.scheduler.step()

    def has_begun(self, request_id: RequestId) -> bool:
        return bool(self.runs[request_id].generated_ids)

    def finished(self, request_id: RequestId) -> RequestFinished:
        (event,) = (
            event
            for event in self.events
            if isinstance(event, RequestFinished) and event.request_id == request_id
        )
        return event

    def close(self) -> None:
        self.store.close(30)
        self.loaded.close()


@pytest.fixture
def open_chats(tiny_paths: dict[str, Path], tmp_path: Path) -> Iterator[Callable[..., Chats]]:
    opened: list[Chats] = []

    def open_chats(kind: str = "gqa", **options: int) -> Chats:
        opened.append(Chats(tiny_paths[kind], tmp_path / str(len(opened)), **options))
        return opened[-1]

    yield open_chats
    for chats in opened:
        chats.close()


Open = Callable[..., Chats]


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_chats_that_run_at_once_share_batches_and_nothing_else(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(kind)
    own_rows = OwnRows(tiny_paths[kind], n_ubatch=N_UBATCH)
    chats.on_event = lambda event: own_rows.compare_at_end(event, chats.runs)
    ids = [chats.submit(letter * 150, 30) for letter in "qxz"]
    chats.finish()
    own_rows.close()
    assert own_rows.num_compared == 3
    assert max(map(len, chats.batches)) == 3
    assert [chats.finished(request_id).num_generation_tokens for request_id in ids] == [30] * 3


def test_while_a_long_prompt_is_read_each_batch_takes_everyone_else_a_token_further(open_chats: Open) -> None:
    chats = open_chats()
    writing = chats.submit("q" * 40, 200)
    chats.step_until(lambda: chats.has_begun(writing))
    first = len(chats.batches)
    reading = chats.submit("x" * 900)
    chats.step_until(lambda: chats.has_begun(reading))
    shared = chats.batches[first:]
    assert all(any(len(part.token_ids) == 1 for part in batch) for batch in shared)
    assert sum(len(part.token_ids) for batch in shared for part in batch) <= N_UBATCH * len(shared)
    assert len(chats.runs[writing].generated_ids) >= len(shared)


def test_two_long_prompts_are_read_in_turn(open_chats: Open) -> None:
    chats = open_chats()
    ids = [chats.submit("q" * 600), chats.submit("x" * 600)]
    chats.finish()
    order = [event.request_id for event in chats.events if isinstance(event, PrefillProgress)]
    # One is admitted a step, so the first is a chunk ahead.
    assert order[1:9] == [ids[1], ids[0]] * 4 or order[:8] == [ids[0], ids[1]] * 4


def test_a_chat_alone_reads_in_chunks_of_the_whole_batch(open_chats: Open) -> None:
    chats = open_chats()
    chats.submit("q" * 200, 1)
    chats.finish()
    assert [len(part.token_ids) for (part,) in chats.batches] == [64, 64, 64, 7, 1]


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_stopping_one_leaves_the_others_be(open_chats: Open, tiny_paths: dict[str, Path], kind: str) -> None:
    chats = open_chats(kind)
    own_rows = OwnRows(tiny_paths[kind], n_ubatch=N_UBATCH)
    chats.on_event = lambda event: own_rows.compare_at_end(event, chats.runs)
    kept, stopped = chats.submit("q" * 100, 40), chats.submit("x" * 100, 40)
    chats.step_until(lambda: chats.has_begun(stopped))
    chats.scheduler.cancel(stopped)
    chats.finish()
    own_rows.close()
    assert chats.finished(stopped).finish_reason == FinishReason.CANCELLED
    assert chats.finished(kept).finish_reason == FinishReason.LENGTH
    assert chats.finished(kept).num_generation_tokens == 40
    assert own_rows.num_compared == 2


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_batch_dropped_by_anothers_stop_is_computed_again(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(kind)
    own_rows = OwnRows(tiny_paths[kind], n_ubatch=N_UBATCH)
    chats.on_event = lambda event: own_rows.compare_at_end(event, chats.runs)
    writing = chats.submit("q" * 100, 40)
    chats.step_until(lambda: chats.has_begun(writing))
    reading = chats.submit("x" * 600, 5)
    chats.step_until(lambda: any(len(batch) == 2 for batch in chats.batches))
    # As if a stop of the reading one came in the middle of the next batch.
    chats.loaded.context.abort_flag.set()
    chats.finish()
    own_rows.close()
    assert own_rows.num_compared == 2
    assert chats.finished(writing).num_generation_tokens == 40
    assert chats.finished(writing).reread_tokens + chats.finished(reading).reread_tokens > 0


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_where_cells_run_out_the_youngest_waits_and_goes_on_from_the_store(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(kind, n_ctx=512)
    own_rows = OwnRows(tiny_paths[kind], n_ubatch=N_UBATCH, n_ctx=512)
    chats.on_event = lambda event: own_rows.compare_at_end(event, chats.runs)
    elder, younger = chats.submit("q" * 120, 250), chats.submit("x" * 120, 250)
    chats.finish()
    own_rows.close()
    first, second = chats.finished(elder), chats.finished(younger)
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    assert first.num_generation_tokens == second.num_generation_tokens == 250
    assert first.counts.prefilled_tokens == second.counts.prefilled_tokens == 120
    # All but the last row came back from the store.
    assert second.reread_tokens <= 2 * N_UBATCH
    assert own_rows.num_compared == 2
    phases = [
        event.phase
        for event in chats.events
        if isinstance(event, PhaseChanged) and event.request_id == younger
    ]
    assert Phase.QUEUED in phases


def test_a_chat_that_does_not_fit_beside_the_others_waits_until_it_does(open_chats: Open) -> None:
    chats = open_chats(n_ctx=512)
    first, second = chats.submit("q" * 300, 10), chats.submit("x" * 300, 10)
    chats.finish()
    assert max(map(len, chats.batches)) == 1
    assert chats.finished(first).num_preemptions == chats.finished(second).num_preemptions == 0


def test_more_chats_than_sequences_are_all_answered_in_the_order_they_came(open_chats: Open) -> None:
    chats = open_chats(n_seq=2)
    ids = [chats.submit(letter * 50, 10) for letter in "qxzbd"]
    chats.finish()
    ended = [event.request_id for event in chats.events if isinstance(event, RequestFinished)]
    assert ended == ids


def test_no_cell_stays_behind(open_chats: Open) -> None:
    chats = open_chats()
    context = chats.loaded.context
    for _ in range(3):
        ids = [chats.submit(letter * 120, 10) for letter in "qxz"]
        chats.step_until(lambda ids=ids: chats.has_begun(ids[-1]))
        chats.scheduler.cancel(ids[1])
        chats.finish()
    idle = [sequence for sequence in context.sequences if sequence.token_ids]
    assert len(idle) <= 1
    last_position = context._llama.llama_memory_seq_pos_max
    held = {s.seq_id: last_position(context.memory, s.seq_id) + 1 for s in context.sequences}
    assert held == {s.seq_id: s.num_tokens for s in context.sequences}
    assert context.num_free_cells == context.n_ctx - sum(s.num_tokens for s in idle)


def test_a_private_chat_stays_in_memory_while_others_run(open_chats: Open) -> None:
    chats = open_chats()
    chats.submit("q" * 100, 5, is_private=True)
    chats.finish()
    chats.submit("x" * 100, 5)
    chats.finish()
    again = chats.submit("q" * 100 + "b", 5, is_private=True)
    chats.finish()
    assert chats.finished(again).counts.reused_tokens == 100


def test_a_chat_read_beside_others_lies_as_if_alone_when_it_goes_on_alone(open_chats: Open) -> None:
    chats = open_chats()
    chats.submit("q" * 200, 20)
    second = chats.submit("x" * 200, 40)
    chats.finish()
    chats.store.flush(30)
    again = chats.submit("x" * 200 + chats.finished(second).text + "b", 5)
    chats.finish()
    sequence = next(s for s in chats.loaded.context.sequences if s.token_ids)
    assert sequence.lies_as_if_alone
    assert chats.finished(again).counts.prefilled_tokens < 200


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineError(ErrorCode.DECODE_FAILED, "no token fits"), ErrorCode.DECODE_FAILED),
        (RuntimeError("a fault"), ErrorCode.INTERNAL),
    ],
)
def test_what_goes_wrong_in_one_reply_ends_no_other(
    open_chats: Open, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    chats = open_chats()
    kept, failing = chats.submit("q" * 60, 30), chats.submit("x" * 60, 30)
    chats.step_until(lambda: chats.has_begun(failing))

    def fail() -> Iterator[Event]:
        raise error

    monkeypatch.setattr(chats.runs[failing], "sample", fail)
    chats.finish()
    assert chats.finished(kept).num_generation_tokens == 30
    (failed,) = (event for event in chats.events if isinstance(event, RequestFailed))
    assert (failed.request_id, failed.code) == (failing, code)


# --- reading ahead -----------------------------------------------------------------------------------------


def test_a_draft_is_read_while_nobody_waits_and_enter_finds_it_read(open_chats: Open) -> None:
    chats = open_chats()
    draft = chats.loaded.prompt_builder.build(GenerationRequest(ModelConfig("unused"), prompt="q" * 500))
    ahead = TypeAhead(chats.loaded, chats.store, draft, ReadAhead.WORDS)
    chats.scheduler.look_ahead(ahead)
    while chats.scheduler.has_work:
        chats.scheduler.step()
    assert ahead.prefilled_tokens == 500
    assert chats.store.num_blocks == 0
    sent = chats.submit("q" * 500 + "xz", 5)
    chats.finish()
    assert chats.finished(sent).counts.reused_tokens == 500
    assert chats.finished(sent).counts.prefilled_tokens == 2


def test_a_fault_while_a_draft_is_read_costs_no_reply(
    open_chats: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = open_chats()
    draft = chats.loaded.prompt_builder.build(GenerationRequest(ModelConfig("unused"), prompt="q" * 50))
    ahead = TypeAhead(chats.loaded, chats.store, draft, ReadAhead.WORDS)

    def fail(chunk_size: int) -> bool:
        raise RuntimeError("a fault")

    monkeypatch.setattr(ahead, "step", fail)
    chats.scheduler.look_ahead(ahead)
    chats.scheduler.step()
    assert not chats.scheduler.has_work
    sent = chats.submit("q" * 50, 3)
    chats.finish()
    assert chats.finished(sent).num_generation_tokens == 3


def test_a_reply_never_waits_for_a_draft(open_chats: Open) -> None:
    chats = open_chats()
    draft = chats.loaded.prompt_builder.build(GenerationRequest(ModelConfig("unused"), prompt="q" * 500))
    chats.scheduler.look_ahead(TypeAhead(chats.loaded, chats.store, draft, ReadAhead.WORDS))
    chats.scheduler.step()
    before = len(chats.batches)
    other = chats.submit("x" * 30, 3)
    chats.step_until(lambda: chats.has_begun(other))
    assert all(part.token_ids[0] != draft.token_ids[0] for batch in chats.batches[before:] for part in batch)


def test_deltas_of_several_chats_join_to_their_own_texts(open_chats: Open) -> None:
    chats = open_chats()
    ids = [chats.submit(letter * 30, 25) for letter in "qxz"]
    chats.finish()
    for request_id in ids:
        deltas = [e for e in chats.events if isinstance(e, TokenDelta) and e.request_id == request_id]
        assert "".join(delta.text for delta in deltas) == chats.finished(request_id).text
