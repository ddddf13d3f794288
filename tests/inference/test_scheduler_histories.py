"""Random interleavings over eight chats: each one's rows are what its run alone gives, and no cell leaks."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from inference.events import Event, RequestFailed, RequestFinished
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.llama.context import ContextParams
from inference.loaded_model import LoadedModel
from inference.metrics import KVUsage
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import FinishReason, GenerationRequest, ReadAhead, RequestId
from inference.sampling_params import SamplingParams
from inference.scheduler import Scheduler
from inference.type_ahead import TypeAhead
from tests.inference.own_rows import OwnRows

N_CTX, N_UBATCH, N_SEQ = 320, 32, 3
NUM_CHATS = 8
CI_EXAMPLES = 100
# Two models take turns; together they hold every kind of memory.
PAIRS = [("gqa", "sliding window"), ("hybrid", "mqa"), ("recurrent", "mha")]

chats = st.integers(0, NUM_CHATS - 1)
texts = st.text("qxzbd", min_size=1, max_size=90)


class Interleavings(RuleBasedStateMachine):
    paths: tuple[Path, Path]
    digests: ModelDigests
    num_compared = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.prompts = [f"{number}" for number in range(NUM_CHATS)]
        self.runs: dict[RequestId, ReplyRun] = {}
        self.ended: dict[RequestId, Event] = {}
        self.chat_of: dict[RequestId, int] = {}
        self.num_submitted = 0

    @initialize()
    def start(self) -> None:
        self.own = [OwnRows(path, n_ubatch=N_UBATCH, n_ctx=N_CTX) for path in self.paths]
        self.model = 0
        self.load()

    def load(self) -> None:
        params = ContextParams(n_ctx=N_CTX, n_ubatch=N_UBATCH, n_seq=N_SEQ)
        config = ModelConfig(str(self.paths[self.model]), n_threads=1)
        self.loaded = LoadedModel(config, self.digests, lambda _fraction: True, params)
        self.store = BlockStore(self.folder, 10**9, on_notice=pytest.fail)
        usage = KVUsage(0, 0, 0, 0, 0, 0, 0, 0)
        self.scheduler = Scheduler(self.loaded, self.store, self.note, lambda: usage)

    def note(self, event: Event) -> None:
        if isinstance(event, RequestFinished | RequestFailed):
            assert event.request_id not in self.ended
            self.ended[event.request_id] = event
            self.own[self.model].compare_at_end(event, self.runs)

    def is_busy(self, chat: int) -> bool:
        return any(self.chat_of[run.request.request_id] == chat for run in self.scheduler.runs())

    @rule(chat=chats, text=texts, num_tokens=st.integers(1, 40), is_private=st.booleans())
    def submit(self, chat: int, text: str, num_tokens: int, is_private: bool) -> None:
        if self.is_busy(chat):
            return
        prompt = self.prompts[chat] + text
        if len(prompt) + num_tokens > N_CTX:
            prompt = str(chat)
        self.prompts[chat] = prompt
        sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        request = GenerationRequest(
            ModelConfig("unused"), prompt=prompt, sampling=sampling, is_private=is_private, owner=f"{chat}"
        )
        self.num_submitted += 1
        run = ReplyRun(request, self.loaded, self.store, arrived=float(self.num_submitted))
        self.runs[request.request_id], self.chat_of[request.request_id] = run, chat
        self.scheduler.submit(run)

    @rule(chat=chats, at=st.floats(0, 1))
    def branch(self, chat: int, at: float) -> None:
        if not self.is_busy(chat):
            self.prompts[chat] = self.prompts[chat][: max(1, round(at * len(self.prompts[chat])))]

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        for _ in range(times):
            if self.scheduler.has_work:
                self.scheduler.step()
        context = self.loaded.context
        last_position = context._llama.llama_memory_seq_pos_max
        for sequence in context.sequences:
            assert last_position(context.memory, sequence.seq_id) + 1 == sequence.num_tokens
        assert last_position(context.memory, 0) == -1

    @precondition(lambda self: self.scheduler.has_replies)
    @rule(which=st.integers(0, 20), drops_batch=st.booleans())
    def cancel(self, which: int, drops_batch: bool) -> None:
        runs = self.scheduler.runs()
        if drops_batch:
            # Its stop comes in the middle of the next batch.
            self.loaded.context.abort_flag.set()
            self.scheduler.step()
        self.scheduler.cancel(runs[which % len(runs)].request.request_id)

    @rule(text=texts)
    def type(self, text: str) -> None:
        request = GenerationRequest(ModelConfig("unused"), prompt=self.prompts[0] + text)
        prompt = self.loaded.prompt_builder.build(request)
        if len(prompt.token_ids) <= N_CTX:
            self.scheduler.look_ahead(TypeAhead(self.loaded, self.store, prompt, ReadAhead.ALL))

    @rule()
    def switch_model(self) -> None:
        self.finish()
        self.close()
        self.model = 1 - self.model
        self.load()

    def finish(self) -> None:
        for _ in range(20_000):
            if not self.scheduler.has_replies:
                break
            self.scheduler.step()
        assert not self.scheduler.has_replies, "no progress"

    def close(self) -> None:
        self.store.close(30)
        self.loaded.close()

    def teardown(self) -> None:
        if hasattr(self, "loaded"):
            self.finish()
            self.close()
            assert set(self.ended) == set(self.runs)
            for request_id, event in self.ended.items():
                assert isinstance(event, RequestFinished), event
                run = self.runs[request_id]
                if event.finish_reason == FinishReason.LENGTH:
                    assert event.num_generation_tokens == run.request.sampling.max_tokens
                    parts = event.counts.reused_tokens + event.counts.restored_tokens
                    assert parts + event.counts.prefilled_tokens == event.counts.num_prompt_tokens
            type(self).num_compared += sum(own.num_compared for own in self.own)
            for own in self.own:
                own.close()
        shutil.rmtree(self.folder)


def run_interleavings(paths: tuple[Path, Path], folder: Path, max_examples: int, steps: int) -> None:
    class Case(Interleavings):
        pass

    Case.paths, Case.digests = paths, ModelDigests(folder / "digests.json")
    run_state_machine_as_test(
        Case,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            # The same ones in every `make test`; the long test draws others each time.
            derandomize=max_examples == CI_EXAMPLES,
            phases=[HypothesisPhase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Case.num_compared > max_examples


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_random_interleavings(tiny_paths: dict[str, Path], tmp_path: Path, pair: tuple[str, str]) -> None:
    run_interleavings(
        (tiny_paths[pair[0]], tiny_paths[pair[1]]), tmp_path, max_examples=CI_EXAMPLES, steps=40
    )


@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_many_random_interleavings(
    tiny_paths: dict[str, Path], tmp_path: Path, pair: tuple[str, str]
) -> None:
    run_interleavings((tiny_paths[pair[0]], tiny_paths[pair[1]]), tmp_path, max_examples=3340, steps=40)
