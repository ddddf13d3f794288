"""A batch that fails in the middle of a prompt: the sequence holds what the library says, and the next reply is right.

Reported as mdegans/drama_llama#52: part of a failed batch stayed in the cache, and later prefix hits were wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.llama.sequence_state import StateKind, state_kind
from inference.reply_run import ReplyRun
from inference.request import EngineError, ErrorCode, FinishReason
from tests.inference.conftest import TINY_KINDS
from tests.inference.faulty_library import faulty
from tests.inference.lone_run import LoneRun
from tests.inference.stored_chats import StoredChats, let_restoring_pay, request

# Eight batches of 64 tokens at most, the last of them of one.
PROMPT = "bdgkq" * 86
NO_FREE_CELLS, ABORTED, OUT_OF_MEMORY, FATAL = 1, 2, -2, -3
Open = Callable[[str], StoredChats]


@pytest.fixture
def open_chats(tiny_paths: dict[str, Path], tmp_path: Path) -> Iterator[Open]:
    opened: list[StoredChats] = []

    def open_chats(kind: str) -> StoredChats:
        opened.append(StoredChats(tiny_paths[kind], tmp_path / "kv"))
        return opened[-1]

    yield open_chats
    for chats in opened:
        chats.close()


def read_with_fault(chats: StoredChats, code: int, *, fail_at: int, stop: bool = False) -> ReplyRun:
    """stop: as if the user's Stop had aborted the batch."""
    let_restoring_pay(chats.folder, chats.fingerprint)
    chats.reference.begin_request()
    lone = LoneRun(request(PROMPT), chats.loaded, chats.store)
    with faulty(chats.loaded.context, fail_at, code, lone.cancel if stop else lambda: None) as library:
        if stop or code == ABORTED:
            lone.run()
        else:
            with pytest.raises(EngineError) as failed:
                lone.run()
            assert failed.value.code == ErrorCode.DECODE_FAILED
        assert (len(library.results) == fail_at) == (stop or code != ABORTED)
    assert chats.store.flush(30)
    return lone.reply


def assert_library_agrees(chats: StoredChats) -> None:
    sequence = chats.loaded.context.sequences[0]
    llama, memory = sequence.model.llama, chats.loaded.context.memory
    assert llama.llama_memory_seq_pos_max(memory, sequence.seq_id) == sequence.num_tokens - 1


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("code", [NO_FREE_CELLS, OUT_OF_MEMORY, FATAL])
def test_a_prompt_whose_third_batch_failed_is_read_right_when_it_is_sent_again(
    open_chats: Open, kind: str, code: int
) -> None:
    chats = open_chats(kind)
    read_with_fault(chats, code, fail_at=3)
    assert_library_agrees(chats)
    held = chats.loaded.context.sequences[0].num_tokens
    assert held == (128 if kind not in ("recurrent", "hybrid") else 0)
    assert chats.store.store_bytes == 0
    again = chats.ask(PROMPT)
    assert (again.counts.reused_tokens, again.counts.restored_tokens) == (held, 0)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_stop_in_the_third_batch_leaves_nothing_of_that_batch(open_chats: Open, kind: str) -> None:
    chats = open_chats(kind)
    stopped = read_with_fault(chats, ABORTED, fail_at=3, stop=True)
    assert stopped.finish_reason == FinishReason.CANCELLED
    assert_library_agrees(chats)
    assert all(entry.end <= 128 for entry in chats.store._index.entries())
    chats.ask(PROMPT)
    chats.restart()
    chats.ask(PROMPT + "x")


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_batch_dropped_for_no_reason_of_the_replys_own_is_computed_again(
    open_chats: Open, kind: str
) -> None:
    chats = open_chats(kind)
    run = read_with_fault(chats, ABORTED, fail_at=3)
    assert run.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert run.counts.prefilled_tokens == len(PROMPT)
    assert run.reread_tokens == (64 if kind not in ("recurrent", "hybrid") else 3 * 64)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_of_a_failed_prompt_only_rows_of_whole_batches_are_on_disk_and_they_are_right(
    open_chats: Open, kind: str
) -> None:
    chats = open_chats(kind)
    read_with_fault(chats, FATAL, fail_at=6)
    stored = [(entry.start, entry.end) for entry in chats.store._index.entries()]
    has_blocks = state_kind(chats.loaded.context.sequences[0]) != StateKind.CHECKPOINTS_ONLY
    assert stored == ([(0, 256)] if has_blocks else [])
    chats.restart()
    again = chats.ask(PROMPT)
    # What has no checkpoint yet cannot be gone on from.
    assert again.counts.restored_tokens == (256 if kind in ("mha", "gqa", "mqa") else 0)
