"""Restored logits are those of a run that never stored anything, bit by bit, for every kind of model.

Reference R: prefill the prefix, decode the rest in the same batches, no save and no load.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inference.llama.sequence import SCRATCH_ID, Sequence
from inference.llama.sequence_state import (
    StateKind,
    capture_block,
    capture_checkpoint,
    restore_block,
    restore_checkpoint,
    state_kind,
)
from inference.llama.state_layout import cut_rows
from tests.gemma_model import gemma_path
from tests.inference.conftest import TINY_KINDS
from tests.sequence_snapshot import Snapshot, edges, prefill, put_together, random_ids, take_apart

NewContext = Callable[..., Sequence]
F16, Q4_0, Q8_0 = 1, 2, 8
WITH_ATTENTION = tuple(kind for kind in TINY_KINDS if kind != "recurrent")
WITH_CHECKPOINTS = ("sliding window", "recurrent", "hybrid")
ROOT = Path(__file__).resolve().parents[3]


def assert_exact(reference: Sequence, restored: Sequence, num_tokens: int, num_more: int) -> None:
    """Take the reference apart after num_tokens, put it together in the other, and decode on in both."""
    ids = random_ids(num_tokens) + random_ids(num_more, seed=1)
    prefill(reference, ids[:num_tokens])
    put_together(restored, take_apart(reference))
    assert np.array_equal(prefill(restored, ids), prefill(reference, ids))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mha", StateKind.BLOCKS),
        ("gqa", StateKind.BLOCKS),
        ("mqa", StateKind.BLOCKS),
        ("sliding window", StateKind.BLOCKS_AND_CHECKPOINTS),
        ("recurrent", StateKind.CHECKPOINTS_ONLY),
        ("hybrid", StateKind.BLOCKS_AND_CHECKPOINTS),
    ],
)
def test_each_kind_of_model_is_told_before_anything_is_decoded(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, expected: StateKind
) -> None:
    sequence = new_sequence(tiny_paths[kind])
    assert state_kind(sequence) == expected
    assert sequence.context.num_decoded_tokens == 0
    prefill(sequence, random_ids(10))
    assert state_kind(sequence) == expected


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("num_tokens", [1, 2, 255, 256, 257, 511, 512, 513, 700])
def test_restored_logits_are_those_of_a_run_without_a_store(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, num_tokens: int
) -> None:
    assert_exact(new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind]), num_tokens, 40)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
@pytest.mark.parametrize("kv_type", [Q8_0, Q4_0], ids=["q8_0", "q4_0"])
def test_quantised_rows_come_back_exactly(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, kv_type: int
) -> None:
    types = {"type_k": kv_type, "type_v": kv_type}
    assert_exact(new_sequence(tiny_paths[kind], **types), new_sequence(tiny_paths[kind], **types), 700, 40)


# The window's ring of cells is 768 long: before, at and after its end, in its second round and later; the rest is
# short enough for one row at a time, and long enough for tiles of attention.
@pytest.mark.parametrize("num_tokens", [63, 64, 65, 703, 704, 705, 767, 768, 769, 1500, 1536, 1600])
@pytest.mark.parametrize("num_more", [1, 200])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_window_lies_in_the_cells_that_it_had(
    new_sequence: NewContext, tiny_paths: dict[str, Path], num_tokens: int, num_more: int, n_threads: int
) -> None:
    path = tiny_paths["sliding window"]
    reference = new_sequence(path, n_threads=n_threads)
    assert reference.num_window_cells == 768
    assert_exact(reference, new_sequence(path, n_threads=n_threads), num_tokens, num_more)


@pytest.mark.parametrize("num_tokens", [600, pytest.param(2500, marks=pytest.mark.long)])
def test_gemma_3_past_its_window(new_sequence: NewContext, num_tokens: int) -> None:
    path = gemma_path()
    assert_exact(new_sequence(path, n_ctx=4096), new_sequence(path, n_ctx=4096), num_tokens, 80)


@pytest.mark.parametrize("num_tokens", [257, 700])
def test_the_starter_model(new_sequence: NewContext, starter_path: Path, num_tokens: int) -> None:
    assert_exact(new_sequence(starter_path), new_sequence(starter_path), num_tokens, 40)


@pytest.mark.parametrize("num_tokens", [1, 257, 700])
def test_positions_on_several_axes(new_sequence: NewContext, multi_axis_path: Path, num_tokens: int) -> None:
    assert_exact(new_sequence(multi_axis_path), new_sequence(multi_axis_path), num_tokens, 40)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_prefix_that_ends_inside_a_block(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    ids = random_ids(340)
    reference, restored = new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind])
    prefill(reference, ids[:300])
    checkpoint = capture_checkpoint(reference) if kind in WITH_CHECKPOINTS else None
    expected = prefill(reference, ids)
    # Its blocks are those of a longer run.
    prefill(reference, ids + random_ids(400, seed=2))
    cut = edges(740) if kind in WITH_ATTENTION else []
    longer = Snapshot(
        list(reference.token_ids),
        {start: capture_block(reference, start, end) for start, end in cut},
        checkpoint,
    )
    put_together(restored, longer, 300)
    assert np.array_equal(prefill(restored, ids), expected)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
def test_a_block_cut_after_the_window_has_moved_on_is_the_same(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    # In llama.cpp's own state of such a range the rows of windowed layers are silently missing.
    sequence = new_sequence(tiny_paths[kind])
    prefill(sequence, random_ids(256))
    early = capture_block(sequence, 0, 256)
    prefill(sequence, random_ids(256) + random_ids(1200, seed=1))
    assert np.array_equal(capture_block(sequence, 0, 256), early)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
@pytest.mark.parametrize("split", [1, 100, 255])
def test_a_split_block_restores_like_the_whole(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, split: int
) -> None:
    ids = random_ids(540)
    reference, restored = new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind])
    prefill(reference, ids[:500])
    whole = take_apart(reference)
    first = whole.blocks[0]
    parts = {0: cut_rows(first, 0, split), split: cut_rows(first, split, 256), 256: whole.blocks[256]}
    put_together(restored, Snapshot(whole.token_ids, parts, whole.checkpoint))
    assert np.array_equal(prefill(restored, ids), prefill(reference, ids))


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_taking_apart_disturbs_nothing(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    ids = random_ids(740)
    reference, watched = new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind])
    for end in (100, 300, 700):
        prefill(reference, ids[:end])
        prefill(watched, ids[:end])
        take_apart(watched, block_size=100)
    assert np.array_equal(prefill(watched, ids), prefill(reference, ids))


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_restored_sequence_is_taken_apart_into_the_same_bytes(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    reference, restored = new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind])
    prefill(reference, random_ids(800))
    first = take_apart(reference)
    put_together(restored, first)
    again = take_apart(restored)
    assert {start: block.tobytes() for start, block in again.blocks.items()} == {
        start: block.tobytes() for start, block in first.blocks.items()
    }
    if first.checkpoint is not None:
        assert np.array_equal(capture_checkpoint(restored), first.checkpoint)


@pytest.mark.parametrize("kind", WITH_CHECKPOINTS)
@pytest.mark.parametrize(("back_to", "held"), [(300, 320), (300, 1500), (900, 1500)])
def test_a_sequence_in_memory_goes_back_to_a_checkpoint(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, back_to: int, held: int
) -> None:
    ids = random_ids(back_to) + random_ids(60, seed=1)
    sequence = new_sequence(tiny_paths[kind])
    prefill(sequence, ids[:back_to])
    checkpoint = capture_checkpoint(sequence)
    expected = prefill(sequence, ids)
    sequence.clear()
    prefill(sequence, ids[:back_to])
    prefill(sequence, ids[:back_to] + random_ids(held - back_to, seed=2))
    assert restore_checkpoint(sequence, checkpoint, ids[:back_to])
    assert sequence.token_ids == ids[:back_to]
    assert np.array_equal(prefill(sequence, ids), expected)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
@pytest.mark.parametrize("num_common", [0, 100, 256, 400])
def test_blocks_go_on_from_what_is_in_memory(
    new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str, num_common: int
) -> None:
    ids = random_ids(740)
    reference, sequence = new_sequence(tiny_paths[kind]), new_sequence(tiny_paths[kind])
    prefill(reference, ids[:700])
    stored = take_apart(reference)
    prefill(sequence, ids[:num_common] + random_ids(900, seed=3))
    put_together(sequence, stored)
    assert np.array_equal(prefill(sequence, ids), prefill(reference, ids))


def test_blocks_that_memory_holds_already_change_nothing(
    new_sequence: NewContext, tiny_paths: dict[str, Path]
) -> None:
    sequence = new_sequence(tiny_paths["sliding window"])
    ids = random_ids(400)
    prefill(sequence, ids)
    block = capture_block(sequence, 0, 256)
    assert restore_block(sequence, block, 0, ids[:256])
    assert sequence.token_ids == ids
    assert not sequence.awaits_checkpoint


def test_rows_out_of_order_are_put_in_order(new_sequence: NewContext, tiny_paths: dict[str, Path]) -> None:
    # As after another sequence freed lower cells: the first rows then lie behind later ones.
    sequence, ordinary = new_sequence(tiny_paths["gqa"]), new_sequence(tiny_paths["gqa"])
    ids = random_ids(300)
    prefill(ordinary, ids)
    filler = capture_block(ordinary, 0, 100)
    llama, memory = sequence.model.llama, sequence._memory
    assert sequence.context.write_state_of(filler, SCRATCH_ID, 0)
    prefill(sequence, ids[:150])
    llama.llama_memory_seq_rm(memory, SCRATCH_ID, -1, -1)
    prefill(sequence, ids)
    positions = np.frombuffer(sequence.read_rows(0, 300)[16 : 16 + 300 * 12].tobytes(), "<u4")[::3]
    assert positions[0] == 150
    block = capture_block(sequence, 0, 300)
    restored = new_sequence(tiny_paths["gqa"])
    assert restore_block(restored, block, 0, ids)
    assert np.array_equal(capture_block(restored, 0, 300), block)


def test_the_last_free_cells_are_enough_for_the_rows_that_are_wanted(
    new_sequence: NewContext, tiny_paths: dict[str, Path]
) -> None:
    reference, small = new_sequence(tiny_paths["gqa"]), new_sequence(tiny_paths["gqa"], n_ctx=512)
    ids = random_ids(600)
    prefill(reference, ids)
    assert restore_block(small, capture_block(reference, 0, 400), 0, ids[:400])
    assert restore_block(small, capture_block(reference, 400, 600), 400, ids[400:512])
    assert small.token_ids == ids[:512]
    with pytest.raises(ValueError, match="512 at most"):
        restore_block(small, capture_block(reference, 512, 600), 512, ids[512:])


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from inference.llama.context import Context, ContextParams
from inference.llama.model import load_model
from tests.sequence_snapshot import Snapshot, prefill, put_together, random_ids

folder, gguf = map(Path, sys.argv[1:])
model = load_model(gguf, 0, lambda fraction: True)
sequence = Context(model, ContextParams(n_ctx=2048)).sequences[0]
ids = random_ids(740)
blocks = {int(path.stem): np.fromfile(path, np.uint8) for path in folder.glob("*.block")}
checkpoint = folder / "checkpoint"
stored = Snapshot(ids[:700], blocks, np.fromfile(checkpoint, np.uint8) if checkpoint.exists() else None)
put_together(sequence, stored)
prefill(sequence, ids).tofile(folder / "logits")
"""


@pytest.mark.parametrize("kind", ["gqa", *WITH_CHECKPOINTS])
def test_another_process_restores_the_same(
    new_sequence: NewContext, tiny_paths: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    ids = random_ids(740)
    reference = new_sequence(tiny_paths[kind])
    prefill(reference, ids[:700])
    stored = take_apart(reference)
    for start, block in stored.blocks.items():
        block.tofile(tmp_path / f"{start}.block")
    if stored.checkpoint is not None:
        stored.checkpoint.tofile(tmp_path / "checkpoint")
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path), str(tiny_paths[kind])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.fromfile(tmp_path / "logits", np.float32), prefill(reference, ids))
