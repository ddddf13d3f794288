"""A sequence taken apart into blocks and a checkpoint, and put together again, as the store does it."""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from inference.llama.sequence import Sequence
from inference.llama.sequence_state import (
    StateKind,
    capture_block,
    capture_checkpoint,
    restore_block,
    restore_checkpoint,
    state_kind,
)
from inference.llama.state_layout import StateBytes
from inference.messages import TokenId

Logits = npt.NDArray[np.float32]
BLOCK_SIZE = 256


@dataclass(frozen=True)
class Snapshot:
    """blocks: by their start. checkpoint: at len(token_ids), where the model has them."""

    token_ids: list[TokenId]
    blocks: dict[int, StateBytes]
    checkpoint: StateBytes | None


def random_ids(count: int, seed: int = 0) -> list[TokenId]:
    return [TokenId(int(token)) for token in np.random.default_rng(seed).integers(3, 250, count)]


def prefill(sequence: Sequence, token_ids: list[TokenId]) -> Logits:
    """As the engine does: chunks end at absolute multiples of n_ubatch, the last token goes alone."""
    size, last = sequence.context.params.n_ubatch, len(token_ids) - 1
    while (position := sequence.num_tokens) < len(token_ids):
        end = min((position // size + 1) * size, last) if position < last else len(token_ids)
        sequence.decode(token_ids[position:end], want_logits=end > last)
    return sequence.logits()


def edges(num_tokens: int, block_size: int = BLOCK_SIZE) -> list[tuple[int, int]]:
    starts = range(0, num_tokens, block_size)
    return [(start, min(start + block_size, num_tokens)) for start in starts]


def take_apart(sequence: Sequence, block_size: int = BLOCK_SIZE) -> Snapshot:
    kind = state_kind(sequence)
    cut = edges(sequence.num_tokens, block_size) if kind != StateKind.CHECKPOINTS_ONLY else []
    return Snapshot(
        list(sequence.token_ids),
        {start: capture_block(sequence, start, end) for start, end in cut},
        capture_checkpoint(sequence) if kind != StateKind.BLOCKS else None,
    )


def put_together(sequence: Sequence, snapshot: Snapshot, num_tokens: int | None = None) -> None:
    """num_tokens: how many of the first tokens to bring back; all without it."""
    token_ids: ListOf[TokenId] = snapshot.token_ids[:num_tokens]
    starts = sorted(snapshot.blocks)
    for start, end in pairwise([*starts, len(snapshot.token_ids)]):
        if wanted := token_ids[start:end]:
            assert restore_block(sequence, snapshot.blocks[start], start, wanted)
    if snapshot.checkpoint is not None:
        assert restore_checkpoint(sequence, snapshot.checkpoint, token_ids)
    assert sequence.token_ids == token_ids
    assert not sequence.awaits_checkpoint
