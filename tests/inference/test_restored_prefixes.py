"""Stored prefixes that do not fit, are longer, are damaged or gone: what is reported of such stores does not happen.

StoredChats.ask() compares all logits with those of a model without a store, bit by bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from inference import stored_sequence
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.kvcache.prefix_match import PrefixMatch
from inference.llama.context import ContextParams
from inference.llama.sequence import BatchPart
from inference.llama.sequence_state import StateKind
from inference.loaded_model import LoadedModel
from inference.miss import MissReason
from inference.model_config import ModelConfig
from inference.stored_sequence import StoredSequence
from tests.inference.conftest import TINY_KINDS
from tests.inference.lone_run import run_alone
from tests.inference.stored_chats import StoredChats, let_restoring_pay, request
from tests.sequence_snapshot import prefill

ROOT = Path(__file__).resolve().parents[2]
ANY_PREFIX = ("mha", "gqa", "mqa")
RECURRENT = ("recurrent", "hybrid")
Open = Callable[..., StoredChats]


# --- "restored", and then everything is prefilled. Reported as ggml-org/llama.cpp#26676 ---------------


@pytest.mark.parametrize("kind", ["gqa", "sliding window", "hybrid"])
def test_another_process_decodes_what_is_new_and_gives_the_logits_of_one_that_read_everything(
    tiny_paths: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    prefix, folder = "bdgkq" * 100, tmp_path / "kv"
    arguments = [str(tiny_paths[kind]), "--prompt", prefix, "--kv-store", str(folder), "--max-tokens", "1"]
    command = [
        sys.executable,
        "-m",
        "inference",
        "generate",
        *arguments,
        "--context",
        "1024",
        "--threads",
        "1",
    ]
    environment = {**os.environ, "EVERWARM_DATA_DIR": str(tmp_path / "data")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    def load(digests: ModelDigests | None) -> LoadedModel:
        config = ModelConfig(str(tiny_paths[kind]), n_threads=1)
        return LoadedModel(config, digests, lambda _fraction: True, ContextParams(n_ctx=1024))

    reference, loaded = load(None), load(ModelDigests(folder / "model-digests.json"))
    fingerprint = loaded.fingerprint()
    assert fingerprint is not None
    let_restoring_pay(folder, fingerprint)
    store = BlockStore(folder, 10**9, on_notice=pytest.fail)
    run = run_alone(request(prefix + "xzvwxzvwxz", max_tokens=1), loaded, store)
    assert run.prompt is not None
    assert run.sequence is not None
    sequence = reference.context.sequences[0]
    prefill(sequence, run.prompt.token_ids[:500])
    # Not by the counter that is told, but where the batches are handed to the library.
    assert loaded.context.num_decoded_tokens == run.counts.prefilled_tokens == 10
    assert np.array_equal(run.sequence.logits(), prefill(sequence, run.prompt.token_ids))
    store.close(30)
    for model in (reference, loaded):
        model.close()


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_restore_that_only_says_that_it_worked_counts_as_none(
    open_chats: Open, tiny_paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    chats = open_chats(tiny_paths[kind])
    chats.ask("b" * 500, max_tokens=1)
    chats.restart()
    monkeypatch.setattr(stored_sequence, "restore_block", lambda *_arguments: True)
    monkeypatch.setattr(stored_sequence, "restore_checkpoint", lambda *_arguments: True)
    counts = chats.ask("b" * 500 + "d").counts
    assert (counts.reused_tokens, counts.restored_tokens, counts.prefilled_tokens) == (0, 0, 501)


# --- recurrent state has one position. Reported as ggml-org/llama.cpp#25913 ---------------------------


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("restarts", [False, True])
def test_of_recurrent_state_nothing_is_used_by_a_prompt_that_leaves_it_and_all_by_one_that_goes_on(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool
) -> None:
    chats = open_chats(tiny_paths[kind])
    chats.ask("b" * 200, max_tokens=1)
    if restarts:
        chats.restart()
    leaves = chats.ask("b" * 150 + "d" * 50, max_tokens=1)
    assert leaves.counts.prefilled_tokens == 200
    assert chats.loaded.info.reuse == "message ends only"
    assert leaves.miss is not None
    # Where all of a model's state is recurrent, the store has no ids that could tell what was shared.
    told = MissReason.NOTHING_STORED if restarts and kind == "recurrent" else MissReason.MESSAGE_ENDS_ONLY
    assert leaves.miss.reason == told
    if restarts:
        chats.restart()
    goes_on = chats.ask("b" * 200 + "x", max_tokens=1).counts
    assert (goes_on.reused_tokens + goes_on.restored_tokens, goes_on.prefilled_tokens) == (200, 1)


# --- a failed restore. Reported as ggml-org/llama.cpp#14434 -------------------------------------------


@pytest.mark.parametrize("kind", [*TINY_KINDS, "unknown layout"])
def test_a_sequence_that_holds_nothing_leaves_no_file(
    open_chats: Open, tiny_paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "unknown layout":
        monkeypatch.setattr(stored_sequence, "state_kind", lambda _sequence: StateKind.WHOLE)
    chats = open_chats(tiny_paths.get(kind, tiny_paths["gqa"]))
    sequence = StoredSequence(chats.loaded, chats.loaded.context.sequences[0], chats.store, "a chat")
    sequence.bring(chats.prompt("b" * 100))
    sequence.keep_one_block()
    sequence.keep_checkpoint("turn")
    sequence.keep_all()
    assert chats.store.flush(30)
    assert list(chats.folder.rglob("*.kv")) == []
    assert chats.store.stats().num_references == 0


def assert_restored_again(chats: StoredChats) -> None:
    """What is gone was stored anew, all of it at once."""
    chats.restart()
    assert chats.ask("b" * 300 + "dx", max_tokens=1).counts.restored_tokens == 301


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-len(data) // 3] ^= 1
    path.write_bytes(data)


def fill_with_zeros(path: Path) -> None:
    """A gigabyte of them, which take no room on the disk."""
    path.write_bytes(b"")
    os.truncate(path, 2**30)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a flipped byte": flip_a_byte,
    "a gigabyte of zeros": fill_with_zeros,
}


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_files_that_cannot_be_restored_cost_nothing_that_memory_has(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, damage: Callable[[Path], object]
) -> None:
    chats = open_chats(tiny_paths[kind])
    chats.ask("b" * 300, max_tokens=1)
    chats.restart()
    chats.ask("b" * 100, max_tokens=1)
    for path in chats.folder.rglob("*.kv"):
        damage(path)
    run = chats.ask("b" * 300 + "d", max_tokens=1)
    counts = run.counts
    assert (counts.reused_tokens, counts.restored_tokens, counts.prefilled_tokens) == (100, 0, 201)
    assert run.bytes_read < 2**20
    assert_restored_again(chats)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_one_turn_repairs_all_that_is_damaged_of_a_chain(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(tiny_paths[kind], n_ctx=2048)
    for length in (300, 600, 900, 1200):
        chats.ask("b" * length, max_tokens=1)
    chats.restart()
    files = sorted(chats.folder.glob("*/*.kv"), key=lambda path: int(path.name.split("-")[1]))
    # One in the middle, one further on, and the last: finding the first leaves the others out of reach.
    for path in {files[len(files) // 3], files[len(files) // 2], files[-1]}:
        flip_a_byte(path)
    counts = chats.ask("b" * 1200 + "d", max_tokens=1).counts
    assert counts.restored_tokens + counts.prefilled_tokens == 1201
    assert counts.restored_tokens < 1200
    assert chats.store.verify().removed == 0
    chats.restart()
    assert chats.ask("b" * 1200 + "dg", max_tokens=1).counts.restored_tokens == 1201


# --- the tail of a longer prefix. Reported as ggml-org/llama.cpp#1585, #2479, #1257 -------------------


def watch_for_tails(chats: StoredChats) -> None:
    """From now on the library must hold no cell behind those that are decoded."""
    context = chats.loaded.context
    decode, llama = context.decode, context.model.llama

    def decode_behind_the_last(parts: Sequence[BatchPart]) -> None:
        for part in parts:
            last = llama.llama_memory_seq_pos_max(context.memory, part.sequence.seq_id)
            assert last == part.sequence.num_tokens - 1
        decode(parts)

    context.decode = decode_behind_the_last  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_prompt_shorter_than_what_is_stored_sees_nothing_of_the_rest(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool
) -> None:
    chats = open_chats(tiny_paths[kind])
    a, b, c, d = "b" * 90, "d" * 90, "g" * 90, "k" * 90
    for asked in (a + b, a + b + c + d, a + b + c + d):
        chats.ask(a + b + c + d)
        if restarts:
            chats.restart()
        watch_for_tails(chats)
        run = chats.ask(asked)
        if kind in ANY_PREFIX:
            # The logits of the last token are stored nowhere, so it is decoded again.
            assert run.counts.prefilled_tokens == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_word_that_was_told_later_is_not_known_to_an_earlier_question(
    open_chats: Open, starter_path: Path, restarts: bool
) -> None:
    chats = open_chats(starter_path, n_ctx=512, n_ubatch=128)
    asked = "Anna hid a word. Nobody knows it. Question: what is the secret word? The secret word is"
    told = asked + " zanzibar. Yes, the secret word is zanzibar! Once more: the secret word is"
    assert "zanzibar" in chats.ask(told).text
    if restarts:
        chats.restart()
    watch_for_tails(chats)
    run = chats.ask(asked, max_tokens=24)
    assert run.counts.prefilled_tokens == 1
    assert "zanzibar" not in run.text
    again = chats.ask(told)
    assert "zanzibar" in again.text


# --- gone between look-up and use. Reported as abetlen/llama-cpp-python#348 ---------------------------


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("when", ["before the look-up", "between look-up and use"])
def test_what_is_gone_is_a_miss_and_the_index_forgets_it(
    open_chats: Open, tiny_paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    chats = open_chats(tiny_paths[kind])
    chats.ask("b" * 300, max_tokens=1)
    chats.loaded.context.clear()

    def remove_all() -> None:
        for path in chats.folder.rglob("*.kv"):
            path.unlink()

    if when == "before the look-up":
        remove_all()
    match_prefix, matched = chats.store.match_prefix, []

    def match_and_lose(*arguments: object, **options: object) -> PrefixMatch:
        match = match_prefix(*arguments, **options)  # type: ignore[arg-type]
        matched.append(match.num_tokens or len(match.checkpoints))
        remove_all()
        return match

    monkeypatch.setattr(chats.store, "match_prefix", match_and_lose)
    sequence = StoredSequence(chats.loaded, chats.loaded.context.sequences[0], chats.store, None)
    prompt, decode, usable = chats.prompt("b" * 300 + "d"), chats.loaded.context.decode, []

    def note_what_is_known(parts: Sequence[BatchPart]) -> None:
        usable.append(sequence.look_up(prompt).num_usable)
        decode(parts)

    chats.loaded.context.decode = note_what_is_known  # type: ignore[method-assign]
    counts = chats.ask("b" * 300 + "d", max_tokens=1).counts
    assert matched[0]
    assert usable[0] == 0
    assert (counts.restored_tokens, counts.prefilled_tokens) == (0, 301)
    monkeypatch.undo()
    # Files went in the middle of that turn too, so it could not store everything.
    chats.restart()
    chats.ask("b" * 300 + "dx", max_tokens=1)
    assert_restored_again(chats)
