"""Random histories of chats, restarts, evictions and damage: every reply's logits are those of a model without a
store, and nothing that could be reused or restored is prefilled again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
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

from inference.events import Event, Phase, PhaseChanged
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.kvcache.reuse import token_array
from inference.llama.context import ContextParams
from inference.llama.sequence_state import StateKind, state_kind
from inference.loaded_model import LoadedModel
from inference.messages import Message, TokenId
from inference.model_config import ModelConfig
from inference.prompt import Prompt
from inference.reply_run import ReplyRun
from inference.request import FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from inference.stored_sequence import StoredSequence
from tests.inference.chat_texts import fraction, reply_lengths, systems, texts, which
from tests.inference.conftest import TINY_KINDS
from tests.inference.lone_run import LoneRun
from tests.inference.stored_chats import let_restoring_pay
from tests.inference.storeless_reference import StorelessReference

F16, Q4_0, Q8_0 = 1, 2, 8
N_CTX, N_UBATCH = 640, 32
WINDOW = 64
LARGE_BUDGET = 10**9
CI_EXAMPLES = 13
# A kind of model, and the type of K and V.
CASES = [
    pytest.param(kind, kv_type, id=f"{kind} {name}")
    for kind in TINY_KINDS
    for kv_type, name in ((F16, "f16"), (Q8_0, "q8_0"), (Q4_0, "q4_0"))
    if kind != "recurrent" or kv_type == F16
]

Ids = tuple[TokenId, ...]


class Histories(RuleBasedStateMachine):
    """stored: sequences of which every row must be found. checkpoints: those at whose ends there must be one. lost,
    lost_checkpoints: of which nobody knows how much is left. The four that follow: set by a subclass for each case."""

    model_path: Path
    kv_type: int
    digests: ModelDigests
    totals: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.chats: list[list[Message]] = []
        self.prompts: list[str] = []
        self.stored: set[Ids] = set()
        self.checkpoints: set[Ids] = set()
        self.budget_bytes = LARGE_BUDGET
        self.lost: set[Ids] = set()
        self.lost_checkpoints: set[Ids] = set()
        self.is_damaged = False
        self.has_lost_files = False
        self.notices: list[str] = []

    # --- what stays the same over restarts ---------------------------------------------------------------

    @initialize()
    def start(self) -> None:
        self.storeless = self.load(None)
        self.reference = StorelessReference(self.storeless.context.sequences[0])
        self.open()

    def load(self, digests: ModelDigests | None) -> LoadedModel:
        params = ContextParams(n_ctx=N_CTX, n_ubatch=N_UBATCH, type_k=self.kv_type, type_v=self.kv_type)
        config = ModelConfig(str(self.model_path), n_threads=1)
        return LoadedModel(config, digests, lambda _fraction: True, params)

    def open(self) -> None:
        self.store = BlockStore(self.folder, self.budget_bytes, on_notice=self.notices.append)
        self.loaded = self.load(self.digests)
        self.context = self.loaded.context
        self.sequence = self.context.sequences[0]
        self.reference.watch(self.sequence)
        fingerprint = self.loaded.fingerprint()
        assert fingerprint is not None
        self.fingerprint = fingerprint
        self.has_checkpoints = StoredSequence(self.loaded, self.sequence, self.store, None).has_checkpoints

    def close(self) -> None:
        self.store.close(30)
        self.loaded.close()

    def teardown(self) -> None:
        if hasattr(self, "loaded"):
            self.close()
            self.storeless.close()
            self.totals["compared"] += self.reference.num_compared
            self.totals["replayed"] += self.reference.num_replayed
            self.totals["put together"] += self.reference.num_put_together
        shutil.rmtree(self.folder)

    # --- one request -------------------------------------------------------------------------------------

    def run(
        self,
        request: GenerationRequest,
        num_tokens: int,
        stop: Callable[[LoneRun], None] | None = None,
        stop_after: int = 0,
    ) -> ReplyRun | None:
        """None: the prompt would be too long. stop is called after so many events."""
        sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens)
        request = replace(request, sampling=sampling)
        prompt = self.loaded.prompt_builder.build(request)
        if len(prompt.token_ids) + num_tokens > N_CTX:
            return None
        let_restoring_pay(self.folder, self.fingerprint)
        in_memory = self.in_memory(prompt.token_ids)
        in_store, at_most = self.in_store(prompt.token_ids)
        expected = in_memory if request.is_private else max(in_memory, in_store)
        limit = in_memory if request.is_private else max(in_memory, at_most)
        bytes_before, decoded_before = self.store.bytes_read, self.context.num_decoded_tokens
        self.reference.begin_request()
        lone = LoneRun(request, self.loaded, self.store)
        run, begun_at = lone.reply, None

        def on_event(event: Event) -> None:
            nonlocal begun_at
            if isinstance(event, PhaseChanged) and event.phase == Phase.PREFILL and begun_at is None:
                begun_at = self.sequence.num_tokens
                assert begun_at == run.reused_tokens + run.restored_tokens
            if isinstance(event, PhaseChanged) and event.phase == Phase.DECODE and not run.generated_ids:
                counts = run.counts
                num_decoded = self.context.num_decoded_tokens - decoded_before
                assert num_decoded == counts.prefilled_tokens + run.reread_tokens
                assert begun_at is not None
                assert begun_at + counts.prefilled_tokens == counts.num_prompt_tokens == len(prompt.token_ids)
            if stop is not None and len(lone.events) == stop_after + 1:
                stop(lone)

        lone.run(on_event)
        assert run.finish_reason is not None
        if begun_at is not None:
            assert begun_at <= limit
            if not self.is_damaged:
                assert begun_at >= expected
                assert (run.restored_tokens > 0) <= (run.bytes_read > 0)
        if request.is_private:
            assert (run.restored_tokens, self.store.bytes_read) == (0, bytes_before)
        assert self.store.flush(30)
        if not request.is_private and begun_at is not None:
            self.note_stored(prompt, begun_at)
        return run

    def in_memory(self, prompt: list[TokenId]) -> int:
        """Tokens that memory alone can serve, by the rules of each kind."""
        held = self.sequence.token_ids
        num_common = min(common(held, prompt), len(prompt) - 1)
        if self.loaded.model.is_recurrent:
            return num_common if num_common == len(held) else 0
        if self.loaded.model.n_swa and (self.sequence.pos_min() or 0) > max(0, num_common - WINDOW + 1):
            return 0
        return num_common

    def in_store(self, prompt: list[TokenId]) -> tuple[int, int]:
        """Tokens that must be found, and the most that may be: where files were lost, what continues them is found
        again once somebody has stored them anew."""
        stored, checkpoints = self.stored, self.checkpoints
        must = self.usable(prompt, stored, checkpoints)
        if not self.has_lost_files:
            return must, must
        return must, self.usable(prompt, stored | self.lost, checkpoints | self.lost_checkpoints)

    def usable(self, prompt: list[TokenId], stored: set[Ids], checkpoints: set[Ids]) -> int:
        limit = len(prompt) - 1
        if self.has_checkpoints:
            return max(
                (len(ids) for ids in checkpoints if common(ids, prompt) == len(ids) <= limit), default=0
            )
        return min(limit, max((common(ids, prompt) for ids in stored), default=0))

    def note_stored(self, prompt: Prompt, begun_at: int) -> None:
        held = tuple(self.sequence.token_ids)
        if self.is_damaged:
            assert self.store.verify().removed >= 0
            self.is_damaged = False
            self.read_back([*self.stored, held], [*self.checkpoints, held])
        elif self.budget_bytes < LARGE_BUDGET:
            self.read_back([*self.stored, held], [*self.checkpoints, held])
        elif held:
            self.stored.add(held)
            ends = (prompt.system_end, prompt.user_end)
            self.checkpoints |= {
                held[:end]
                for end in ends
                if end and begun_at < end < min(len(held) + 1, len(prompt.token_ids))
            }
            self.checkpoints.add(held)

    def read_back(self, stored: list[Ids], checkpoints: list[Ids]) -> None:
        """What is left, as the store itself says."""
        self.lost |= set(stored)
        self.lost_checkpoints |= set(checkpoints)
        self.stored, self.checkpoints = set(), set()
        for ids in {*stored, *checkpoints}:
            match = self.store.match_prefix(self.fingerprint, token_array(ids), max_hit_length=len(ids))
            self.stored.add(ids[: match.num_tokens])
            ends = [checkpoint.end for checkpoint in match.checkpoints]
            is_alone = state_kind(self.sequence) == StateKind.CHECKPOINTS_ONLY
            self.checkpoints |= {ids[:end] for end in ends if is_alone or end <= match.num_tokens}
        self.stored.discard(())

    # --- what happens --------------------------------------------------------------------------------------

    def reply(self, messages: list[Message], owner: str | None, num_tokens: int) -> None:
        run = self.run(self.chat_request(messages, owner), num_tokens)
        if run is not None:
            answer = Message("assistant", run.text, tuple(run.generated_ids))
            self.chats.append([*messages, answer])

    def chat_request(self, messages: list[Message], owner: str | None = None) -> GenerationRequest:
        return GenerationRequest(ModelConfig("unused"), messages=tuple(messages), owner=owner)

    def raw_request(self, prompt: str) -> GenerationRequest:
        return GenerationRequest(ModelConfig("unused"), prompt=prompt)

    @rule(system=systems, text=texts, owner=st.sampled_from("abc"), num_tokens=reply_lengths)
    def new_chat(self, system: str | None, text: str, owner: str, num_tokens: int) -> None:
        begin = [] if system is None else [Message("system", system)]
        self.reply([*begin, Message("user", text)], owner, num_tokens)

    @precondition(lambda self: self.chats)
    @rule(chat=which, text=texts, owner=st.sampled_from("abc"), num_tokens=reply_lengths)
    def go_on(self, chat: int, text: str, owner: str, num_tokens: int) -> None:
        self.reply([*self.chats[chat % len(self.chats)], Message("user", text)], owner, num_tokens)

    @precondition(lambda self: self.chats)
    @rule(chat=which, num_tokens=reply_lengths)
    def regenerate(self, chat: int, num_tokens: int) -> None:
        self.reply(self.chats[chat % len(self.chats)][:-1], None, num_tokens)

    @precondition(lambda self: self.chats)
    @rule(chat=which, at=which, text=texts, num_tokens=reply_lengths)
    def branch(self, chat: int, at: int, text: str, num_tokens: int) -> None:
        messages = self.chats[chat % len(self.chats)]
        answers = [index + 1 for index, message in enumerate(messages) if message.role == "assistant"]
        self.reply([*messages[: answers[at % len(answers)]], Message("user", text)], None, num_tokens)

    @rule(text=texts, num_tokens=reply_lengths)
    def raw(self, text: str, num_tokens: int) -> None:
        if self.run(self.raw_request(text), num_tokens) is not None:
            self.prompts.append(text)

    @precondition(lambda self: self.prompts)
    @rule(prompt=which, at=fraction, text=st.one_of(texts, st.just("")), num_tokens=reply_lengths)
    def earlier_prefix(self, prompt: int, at: float, text: str, num_tokens: int) -> None:
        known = self.prompts[prompt % len(self.prompts)]
        self.raw(text=known[: max(1, round(at * len(known)))] + text, num_tokens=num_tokens)

    @rule(text=texts, after=st.integers(0, 25), is_others=st.booleans())
    def stop_early(self, text: str, after: int, is_others: bool) -> None:
        """is_others: another chat's stop drops the batch, and this one goes on."""

        def stop(run: LoneRun) -> None:
            self.context.abort_flag.set() if is_others else run.cancel()

        run = self.run(self.raw_request(text), 12, stop, after)
        if run is not None and run.finish_reason != FinishReason.CANCELLED:
            self.prompts.append(text)

    @rule(text=texts)
    def private(self, text: str) -> None:
        let_restoring_pay(self.folder, self.fingerprint)
        before = sorted(self.folder.rglob("*"))
        self.run(replace(self.raw_request(text), is_private=True), 3)
        assert sorted(self.folder.rglob("*")) == before

    @precondition(lambda self: self.chats)
    @rule(chat=which)
    def open_chat(self, chat: int) -> None:
        """Its prefix is brought before anything is asked."""
        request = self.chat_request(self.chats[chat % len(self.chats)])
        prompt = self.loaded.prompt_builder.build(request)
        if len(prompt.token_ids) > N_CTX:
            return
        let_restoring_pay(self.folder, self.fingerprint)
        in_memory, (in_store, at_most) = self.in_memory(prompt.token_ids), self.in_store(prompt.token_ids)
        sequence = StoredSequence(self.loaded, self.sequence, self.store, None)
        found = sequence.look_up(prompt).num_usable
        if not self.is_damaged:
            assert in_store <= found <= at_most
        decoded_before = self.context.num_decoded_tokens
        brought = sequence.bring(prompt)
        assert self.context.num_decoded_tokens == decoded_before
        assert self.sequence.token_ids == prompt.token_ids[: brought.reused_tokens + brought.restored_tokens]
        if not self.is_damaged:
            assert self.sequence.num_tokens == max(in_memory, found)

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()

    @rule(at=fraction)
    def evict(self, at: float) -> None:
        self.store.prune(round(at * self.store.store_bytes))
        self.read_back(list(self.stored), list(self.checkpoints))

    @rule(num_bytes=st.sampled_from([0, 100_000, 400_000, LARGE_BUDGET]))
    def set_budget(self, num_bytes: int) -> None:
        self.budget_bytes = self.store.budget_bytes = num_bytes
        assert self.store.flush(30)
        assert self.store.store_bytes <= num_bytes
        self.read_back(list(self.stored), list(self.checkpoints))

    @rule(owner=st.sampled_from("abc"))
    def delete_chats_of(self, owner: str) -> None:
        self.store.forget(owner)
        assert self.store.flush(30)
        self.read_back(list(self.stored), list(self.checkpoints))

    @rule(file=which, at=fraction, damage=st.sampled_from(["flip", "cut", "zeros", "remove"]))
    def damage(self, file: int, at: float, damage: str) -> None:
        files = sorted(self.folder.glob("*/*.kv"))
        if not files:
            return
        path = files[file % len(files)]
        data = bytearray(path.read_bytes())
        position = round(at * (len(data) - 1))
        if damage == "flip":
            data[position] ^= 1 << (file % 8)
        path.unlink()
        if damage != "remove":
            path.write_bytes({"flip": bytes(data), "cut": data[:position], "zeros": bytes(len(data))}[damage])
        self.is_damaged = self.has_lost_files = True

    @rule()
    def verify(self) -> None:
        report = self.store.verify()
        assert self.is_damaged or report.removed == 0
        self.is_damaged = False
        self.read_back(list(self.stored), list(self.checkpoints))
        assert self.store.verify().removed == 0


def common(first: Ids | list[TokenId], second: Ids | list[TokenId]) -> int:
    for position, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return position
    return min(len(first), len(second))


def run_histories(path: Path, kv_type: int, folder: Path, max_examples: int, steps: int) -> None:
    class Case(Histories):
        pass

    Case.model_path, Case.kv_type = path, kv_type
    Case.digests = ModelDigests(folder / "digests.json")
    Case.totals = {"compared": 0, "replayed": 0, "put together": 0}
    run_state_machine_as_test(
        Case,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=max_examples == CI_EXAMPLES,  # the long test draws others each time
            phases=[HypothesisPhase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Case.totals["compared"] > Case.totals["replayed"] > Case.totals["put together"]


@pytest.mark.parametrize(("kind", "kv_type"), CASES)
def test_random_histories(tiny_paths: dict[str, Path], tmp_path: Path, kind: str, kv_type: int) -> None:
    run_histories(tiny_paths[kind], kv_type, tmp_path, max_examples=CI_EXAMPLES, steps=22)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "kv_type"), CASES)
def test_many_random_histories(tiny_paths: dict[str, Path], tmp_path: Path, kind: str, kv_type: int) -> None:
    run_histories(tiny_paths[kind], kv_type, tmp_path, max_examples=320, steps=25)
