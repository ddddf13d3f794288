"""What is no block or checkpoint of this sequence is refused, and the sequence stays what it says it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from inference.llama.sequence import Sequence
from inference.llama.sequence_state import (
    IncompleteState,
    StateKind,
    capture_block,
    capture_checkpoint,
    restore_block,
    restore_checkpoint,
    state_kind,
)
from inference.llama.state_layout import StateBytes, parse_block, parse_state, pick_rows
from inference.request import EngineError
from tests.inference.conftest import TINY_KINDS
from tests.sequence_snapshot import prefill, put_together, random_ids, take_apart

NewContext = Callable[..., Sequence]
Q8_0 = 8
WITH_ATTENTION = tuple(kind for kind in TINY_KINDS if kind != "recurrent")
WITH_CHECKPOINTS = ("sliding window", "recurrent", "hybrid")
HELD = random_ids(100)


def pick(block: StateBytes, rows: list[int]) -> StateBytes:
    section = parse_block(block)
    tail = block[section.offset + section.size :]
    return pick_rows(block, section, np.asarray(rows, dtype=np.intp), tail)


def scratch_is_empty(sequence: Sequence) -> bool:
    return all(
        section.num_rows == 0
        for state in sequence.context.read_empty_states()
        for section in parse_state(state).sections
    )


@pytest.fixture
def holding(new_sequence: NewContext, tiny_paths: dict[str, Path]) -> Callable[..., Sequence]:
    """holding(kind): a sequence of that kind that holds the tokens HELD."""

    def holding(kind: str, **params: int) -> Sequence:
        sequence = new_sequence(tiny_paths[kind], **params)
        prefill(sequence, HELD)
        return sequence

    return holding


DAMAGES: dict[str, Callable[[StateBytes], npt.ArrayLike]] = {
    "a row missing at the end": lambda block: pick(block, list(range(49))),
    "a row missing in the middle": lambda block: pick(block, [*range(20), *range(21, 50)]),
    "a row missing at the start": lambda block: pick(block, list(range(1, 50))),
    "two rows exchanged": lambda block: pick(block, [1, 0, *range(2, 50)]),
    "a byte missing": lambda block: block[:-1],
    "a byte too many": lambda block: np.append(block, np.uint8(0)),
    "nothing": lambda block: block[:0],
    "zeros": lambda block: np.zeros_like(block),
}


@pytest.mark.parametrize("kind", WITH_ATTENTION)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_block_is_refused_and_the_sequence_is_as_before(
    holding: Callable[..., Sequence], kind: str, damage: Callable[[StateBytes], StateBytes]
) -> None:
    source, sequence = holding(kind), holding(kind)
    ids = HELD + random_ids(60, seed=1)
    prefill(source, ids)
    expected = prefill(holding(kind), ids)
    assert not restore_block(sequence, damage(capture_block(source, 100, 150)), 100, ids[100:150])
    assert sequence.token_ids == HELD
    assert scratch_is_empty(sequence)
    assert np.array_equal(prefill(sequence, ids), expected)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
def test_a_block_of_other_positions_is_refused(holding: Callable[..., Sequence], kind: str) -> None:
    source, sequence = holding(kind), holding(kind)
    prefill(source, HELD + random_ids(60, seed=1))
    assert not restore_block(sequence, capture_block(source, 101, 160), 100, random_ids(59))
    assert sequence.token_ids == HELD


@pytest.mark.parametrize("kind", WITH_ATTENTION)
def test_rows_of_another_type_are_refused_by_the_library(holding: Callable[..., Sequence], kind: str) -> None:
    source, sequence = holding(kind, type_k=Q8_0, type_v=Q8_0), holding(kind)
    ids = HELD + random_ids(60, seed=1)
    prefill(source, ids)
    expected = prefill(holding(kind), ids)
    assert not restore_block(sequence, capture_block(source, 100, 160), 100, ids[100:])
    assert sequence.token_ids == HELD
    assert scratch_is_empty(sequence)
    assert np.array_equal(prefill(sequence, ids), expected)


@pytest.mark.parametrize("kind", WITH_ATTENTION)
def test_blocks_of_another_model_are_refused(
    holding: Callable[..., Sequence], new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    sequence = holding(kind)
    for other in WITH_ATTENTION:
        if other == kind or {kind, other} == {"gqa", "hybrid"}:
            continue
        source = new_sequence(tiny_paths[other])
        prefill(source, random_ids(160))
        assert not restore_block(sequence, capture_block(source, 100, 160), 100, random_ids(60)), other
        assert sequence.token_ids == HELD
        assert scratch_is_empty(sequence)


@pytest.mark.parametrize("kind", WITH_CHECKPOINTS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda checkpoint: checkpoint[:-1],
        lambda checkpoint: np.append(checkpoint, np.uint8(0)),
        lambda checkpoint: np.zeros_like(checkpoint),
    ],
    ids=["a byte missing", "a byte too many", "zeros"],
)
def test_a_damaged_checkpoint_is_refused_and_the_sequence_is_as_before(
    holding: Callable[..., Sequence], kind: str, damage: Callable[[StateBytes], StateBytes]
) -> None:
    sequence = holding(kind)
    assert not restore_checkpoint(sequence, damage(capture_checkpoint(sequence)), HELD)
    assert sequence.token_ids == HELD
    more = HELD + random_ids(60, seed=1)
    assert np.array_equal(prefill(sequence, more), prefill(holding(kind), more))


@pytest.mark.parametrize("kind", WITH_CHECKPOINTS)
@pytest.mark.parametrize("num_tokens", [99, 100])
def test_a_checkpoint_is_good_for_no_other_position(
    holding: Callable[..., Sequence], kind: str, num_tokens: int
) -> None:
    sequence = holding(kind)
    prefill(sequence, HELD + random_ids(1, seed=1))
    assert not restore_checkpoint(sequence, capture_checkpoint(sequence), sequence.token_ids[:num_tokens])
    assert sequence.num_tokens == 101


@pytest.mark.parametrize("kind", ["sliding window", "hybrid"])
def test_a_checkpoint_needs_its_blocks(
    holding: Callable[..., Sequence], new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    checkpoint = capture_checkpoint(holding(kind))
    with pytest.raises(ValueError, match="blocks"):
        restore_checkpoint(new_sequence(tiny_paths[kind]), checkpoint, HELD)
    with pytest.raises(ValueError, match="blocks"):
        restore_checkpoint(holding(kind), checkpoint, random_ids(100, seed=9))


def test_a_checkpoint_that_the_library_refuses_leaves_nothing(
    holding: Callable[..., Sequence], new_sequence: NewContext, tiny_paths: dict[str, Path]
) -> None:
    sequence = holding("sliding window")
    checkpoint = capture_checkpoint(holding("sliding window", type_k=Q8_0, type_v=Q8_0))
    assert not restore_checkpoint(sequence, checkpoint, HELD)
    assert sequence.num_tokens == 0
    assert scratch_is_empty(sequence)
    assert np.array_equal(prefill(sequence, HELD), prefill(new_sequence(tiny_paths["sliding window"]), HELD))


@pytest.mark.parametrize("kind", ["sliding window", "hybrid"])
def test_blocks_without_their_checkpoint_are_not_decoded_upon(
    holding: Callable[..., Sequence], new_sequence: NewContext, tiny_paths: dict[str, Path], kind: str
) -> None:
    # Every call of the library would succeed, and the logits would be wrong.
    block = capture_block(holding(kind), 0, 100)
    sequence = new_sequence(tiny_paths[kind])
    assert restore_block(sequence, block, 0, HELD)
    assert sequence.awaits_checkpoint
    with pytest.raises(EngineError, match="checkpoint"):
        sequence.decode([HELD[0]], want_logits=True)
    with pytest.raises(IncompleteState):
        capture_checkpoint(sequence)
    sequence.clear()
    prefill(sequence, HELD)


def test_rows_that_only_fill_a_windows_cells_are_never_taken_for_real_ones(
    holding: Callable[..., Sequence], new_sequence: NewContext, tiny_paths: dict[str, Path]
) -> None:
    source, sequence = holding("sliding window"), new_sequence(tiny_paths["sliding window"])
    prefill(source, random_ids(900))
    put_together(sequence, take_apart(source))
    assert sequence.pos_min() == 900 - 64
    assert sequence.state_pos_min() == 900 - 64
    assert sequence.truncate(890)
    with pytest.raises(IncompleteState, match="later position"):
        capture_checkpoint(sequence)


@pytest.mark.parametrize(("start", "end"), [(0, 101), (-1, 5), (5, 5), (6, 5)])
def test_rows_that_are_not_held_cannot_be_captured(
    holding: Callable[..., Sequence], start: int, end: int
) -> None:
    with pytest.raises(ValueError, match="100 tokens"):
        capture_block(holding("gqa"), start, end)


def test_each_kind_refuses_what_it_does_not_have(holding: Callable[..., Sequence]) -> None:
    with pytest.raises(ValueError, match="blocks"):
        capture_checkpoint(holding("gqa"))
    with pytest.raises(ValueError, match="checkpoints only"):
        capture_block(holding("recurrent"), 0, 10)


def test_latent_attention_is_stored_whole(holding: Callable[..., Sequence]) -> None:
    sequence = holding("gqa")
    header = sequence.model.header
    latent = {**header.metadata, f"{header.architecture}.attention.key_length_mla": 64}
    sequence.model.header = dataclasses.replace(header, metadata=latent)
    assert state_kind(sequence) == StateKind.WHOLE
    with pytest.raises(ValueError, match="whole"):
        capture_block(sequence, 0, 10)


def test_a_state_without_flash_attention_is_stored_whole(holding: Callable[..., Sequence]) -> None:
    sequence = holding("gqa")
    sequence.context.flash_attention = False
    assert state_kind(sequence) == StateKind.WHOLE
