"""Reference R for whole histories: a model that never stores or restores, and makes the same decode calls."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence as ListOf
from dataclasses import dataclass

import numpy as np

from inference.llama.sequence import BatchPart, Sequence
from inference.llama.sequence_state import (
    StateKind,
    capture_block,
    capture_checkpoint,
    restore_block,
    restore_checkpoint,
    state_kind,
)
from inference.llama.state_layout import StateBytes, parse_state, pick_rows
from inference.messages import TokenId

_MAX_CANDIDATES = 8


@dataclass(frozen=True)
class Call:
    """One decode call: the sequence was cut to `start` tokens before it, if it held more."""

    start: int
    token_ids: tuple[TokenId, ...]


@dataclass(frozen=True)
class Held:
    """What a sequence holds, as digests. rows: by position; none where all state is recurrent."""

    token_ids: tuple[TokenId, ...]
    rows: tuple[bytes, ...]
    checkpoint: bytes | None


@dataclass(frozen=True)
class History:
    """Calls on an empty sequence, and what it held after them."""

    calls: tuple[Call, ...]
    held: Held


class StorelessReference:
    """Made to hold, row by row, what the sequence under test holds when a request begins: by the very decode calls
    that first gave these rows. From then on every call is made on both, and all logits are compared bit by bit.

    Rows that were never computed for these tokens fail the test. Rows from different calls may meet (damage took the
    blocks in the middle, a checkpoint is newer than the blocks before it): then no single run has given them all,
    and they are put together (num_put_together) after each has been found among those that some run gave.
    """

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._kind = state_kind(sequence)
        self._calls: tuple[Call, ...] | None = ()
        self._is_level = True
        self._rows_of: dict[bytes, set[bytes]] = defaultdict(set)
        self._checkpoints_of: dict[bytes, set[bytes]] = defaultdict(set)
        self._window_rows_of: dict[bytes, set[bytes]] = defaultdict(set)
        self._histories_of: dict[bytes, list[History]] = defaultdict(list)
        self._known_calls: set[tuple[Call, ...]] = set()
        self.num_compared = 0
        self.num_replayed = 0
        self.num_put_together = 0

    def watch(self, tested: Sequence) -> None:
        """From now on for this sequence, too."""
        decode = tested.context.decode

        def decode_both(parts: ListOf[BatchPart]) -> None:
            (part,) = parts
            assert part.sequence is tested
            if not self._is_level:
                self._become(tested)
            try:
                decode(parts)
            except Exception:
                # What it holds now may not be what it held before.
                self._is_level = False
                raise
            self._decode(part.token_ids, want_logits=part.want_logits)
            if part.want_logits:
                assert np.array_equal(tested.logits(), self._sequence.logits()), (
                    f"logits of token {tested.num_tokens - 1} differ"
                )
                self.num_compared += 1

        tested.context.decode = decode_both  # type: ignore[method-assign]

    def begin_request(self) -> None:
        """The sequence under test may hold anything at its next decode."""
        self._is_level = False

    def _become(self, tested: Sequence) -> None:
        self._is_level = True
        wanted = _held(tested, self._kind)
        if wanted == _held(self._sequence, self._kind):
            return
        if not wanted.token_ids:
            self._replay((), 0)
            return
        hashes = _path_hashes(wanted.token_ids)
        for position, row in enumerate(wanted.rows):
            assert row in self._rows_of[hashes[position + 1]], f"row {position} was never computed"
        same_rows = [
            history
            for history in self._histories_of[hashes[-1]]
            if history.held.rows[: len(wanted.rows)] == wanted.rows
        ]
        same_rows.sort(key=lambda history: history.held.checkpoint != wanted.checkpoint)
        for history in same_rows[:_MAX_CANDIDATES]:
            is_replayed = self._replay(history.calls, len(wanted.token_ids))
            if is_replayed and wanted == _held(self._sequence, self._kind):
                self.num_replayed += 1
                return
        if tested.model.n_swa:
            # Rows of several runs may meet in one window, too.
            for position, row in _window_rows(tested).items():
                assert row in self._window_rows_of[hashes[position + 1]], (
                    f"window row {position} was never computed"
                )
        elif wanted.checkpoint is not None:
            assert wanted.checkpoint in self._checkpoints_of[hashes[-1]], "a checkpoint that was never there"
        self._put_together(tested)
        assert wanted == _held(self._sequence, self._kind)
        self.num_put_together += 1

    def _replay(self, calls: tuple[Call, ...], num_tokens: int) -> bool:
        """Make the sequence's first num_tokens by these calls. False: later ones would leave their mark."""
        sequence = self._sequence
        sequence.clear()
        replayed: list[Call] = []
        for call in (*calls, Call(num_tokens, ())):
            start = min(call.start, num_tokens)
            if not sequence.keeps_cells(start) or not sequence.truncate(start):
                return False
            if call.start >= num_tokens:
                break
            sequence.decode(call.token_ids, want_logits=True)
            replayed.append(call)
        self._calls = tuple(replayed)
        return True

    def _put_together(self, tested: Sequence) -> None:
        token_ids = list(tested.token_ids)
        self._sequence.clear()
        if self._kind != StateKind.CHECKPOINTS_ONLY:
            assert restore_block(self._sequence, capture_block(tested, 0, len(token_ids)), 0, token_ids)
        if self._kind != StateKind.BLOCKS:
            assert restore_checkpoint(self._sequence, _checkpoint(tested), token_ids)
        self._calls = None

    def _decode(self, token_ids: ListOf[TokenId], *, want_logits: bool) -> None:
        """And note what it gave."""
        sequence = self._sequence
        start = sequence.num_tokens
        sequence.decode(token_ids, want_logits=want_logits)
        held = _held(sequence, self._kind)
        hashes = _path_hashes(held.token_ids)
        for position in range(start, len(held.rows)):
            self._rows_of[hashes[position + 1]].add(held.rows[position])
        if sequence.model.n_swa:
            for position, row in _window_rows(sequence).items():
                self._window_rows_of[hashes[position + 1]].add(row)
        if held.checkpoint is not None:
            self._checkpoints_of[hashes[-1]].add(held.checkpoint)
        if self._calls is not None:
            self._calls = (*self._calls, Call(start, tuple(token_ids)))
            if self._calls not in self._known_calls:
                self._known_calls.add(self._calls)
                history = History(self._calls, held)
                for end in range(start + 1, len(hashes)):
                    self._histories_of[hashes[end]].append(history)


def _held(sequence: Sequence, kind: StateKind) -> Held:
    token_ids = tuple(sequence.token_ids)
    if not token_ids:
        return Held((), (), None)
    assert not sequence.awaits_checkpoint
    rows: tuple[bytes, ...] = ()
    if kind != StateKind.CHECKPOINTS_ONLY:
        rows = _row_digests(capture_block(sequence, 0, len(token_ids)))
    checkpoint = None if kind == StateKind.BLOCKS else _digest(_checkpoint(sequence))
    return Held(token_ids, rows, checkpoint)


def _checkpoint(sequence: Sequence) -> StateBytes:
    """capture_checkpoint, without the rows of windowed layers that nobody sees any more: it takes none where one of
    these only fills its cell."""
    n_swa = sequence.model.n_swa
    if not n_swa:
        return _without_negative_zeros(capture_checkpoint(sequence))
    state = sequence.read_partial_state()
    window = parse_state(state).first_attention
    in_order = np.argsort(window.positions)
    seen = in_order[window.positions[in_order] > sequence.num_tokens - n_swa]
    return pick_rows(state, window, seen, np.empty(0, dtype=np.uint8))


def _without_negative_zeros(state: StateBytes) -> StateBytes:
    """The library empties a recurrent state by multiplying what was there before with zero: which zeros are negative
    after the first token depends on who used the cell last, and changes no logit. All else is whole words too."""
    words = state.view("<u4").copy()
    words[words == 0x80000000] = 0
    return words.view(np.uint8)


def _window_rows(sequence: Sequence) -> dict[int, bytes]:
    """Digests of windowed layers' rows by position."""
    state = _checkpoint(sequence)
    positions = parse_state(state).first_attention.positions.tolist()
    return dict(zip(positions, _row_digests(state), strict=True))


def _row_digests(block: StateBytes) -> tuple[bytes, ...]:
    section = parse_state(block).first_attention
    rows = np.concatenate(
        [
            block[tensor.offset : tensor.offset + section.num_rows * tensor.row_size].reshape(
                section.num_rows, -1
            )
            for tensor in section.k + section.v
        ],
        axis=1,
    )
    return tuple(map(_digest, rows))


def _digest(data: StateBytes) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(data), digest_size=12).digest()


def _path_hashes(token_ids: ListOf[TokenId]) -> list[bytes]:
    """Of each prefix, the empty one included."""
    hasher = hashlib.blake2b(digest_size=12)
    hashes = [hasher.digest()]
    for token in token_ids:
        hasher.update(token.to_bytes(4, "little"))
        hashes.append(hasher.digest())
    return hashes
