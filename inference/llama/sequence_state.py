"""The sequence's state, out of the context and back in: blocks of attention rows, and checkpoints of the rest.

What cannot be cut between tokens (the rows of windowed layers, recurrent state) travels as a checkpoint, valid at
exactly one position. Blocks of such models hold the rows of the layers that see all tokens; after they were appended
the context refuses to decode until the checkpoint at their end is restored.

For the inference thread only.
"""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from enum import StrEnum
from weakref import WeakKeyDictionary

import numpy as np

from inference.llama.block_layout import BlockLayouts
from inference.llama.context import Context
from inference.llama.sequence import Sequence
from inference.llama.state_layout import (
    EMPTY_ATTENTION_BYTES,
    HEADER_BYTES,
    AttentionSection,
    RecurrentSection,
    SectionKind,
    StateBytes,
    StateLayout,
    UnknownLayout,
    parse_state,
    pick_rows,
)
from inference.llama.window_cells import place_window
from inference.messages import TokenId


class StateKind(StrEnum):
    """How a context's sequence can be stored. WHOLE: its layout is not known, so in one piece only
    (Context.read_state, write_state)."""

    BLOCKS = "blocks"
    BLOCKS_AND_CHECKPOINTS = "blocks and checkpoints"
    CHECKPOINTS_ONLY = "checkpoints only"
    WHOLE = "whole"


class IncompleteState(Exception):
    """The library does not hold (any more) what was asked for; the message says what."""


_Kinds = tuple[SectionKind, ...]
_A, _R = SectionKind.ATTENTION, SectionKind.RECURRENT
# By the sections of a state and of a partial state. Of two attention sections the second is the windowed layers'.
_KINDS: dict[tuple[_Kinds, _Kinds], StateKind] = {
    ((_A,), (_A,)): StateKind.BLOCKS,
    ((_A, _R), (_R,)): StateKind.BLOCKS_AND_CHECKPOINTS,
    ((_A, _A), (_A,)): StateKind.BLOCKS_AND_CHECKPOINTS,
    ((_R,), (_R,)): StateKind.CHECKPOINTS_ONLY,
}
_WITH_BLOCKS = (StateKind.BLOCKS, StateKind.BLOCKS_AND_CHECKPOINTS)
_WITH_CHECKPOINTS = (StateKind.BLOCKS_AND_CHECKPOINTS, StateKind.CHECKPOINTS_ONLY)


@dataclass(frozen=True, slots=True)
class _Empty:
    """An empty sequence's state and partial state, which show what sections this context's states have; the
    state's bytes behind the first section; and how this context's blocks are laid out."""

    kind: StateKind
    state: StateLayout
    partial: StateLayout
    behind_first: StateBytes
    blocks: BlockLayouts


def state_kind(sequence: Sequence) -> StateKind:
    """Told from an empty sequence's state, so nothing has to be decoded for it."""
    empty = _empty(sequence.context)
    return StateKind.WHOLE if empty is None else empty.kind


def capture_block(sequence: Sequence, start: int, end: int) -> StateBytes:
    """A block of the attention rows at positions [start, end); equal rows give equal bytes.

    Raises IncompleteState, or UnknownLayout: this model's state cannot be cut, whatever state_kind said.
    """
    empty = _empty_of_kind(sequence.context, *_WITH_BLOCKS)
    if not 0 <= start < end <= sequence.num_tokens:
        raise ValueError(f"rows [{start}, {end}) of a sequence of {sequence.num_tokens} tokens")
    state = sequence.read_rows(start, end)
    section = parse_state(state, empty.state).first_attention
    if not np.array_equal(np.sort(section.positions), np.arange(start, end)):
        raise IncompleteState(f"{section.num_rows} rows instead of those at [{start}, {end})")
    return _in_order(state, section, empty.behind_first)


def restore_block(sequence: Sequence, block: StateBytes, start: int, token_ids: ListOf[TokenId]) -> bool:
    """Make the sequence, right up to `start`, hold the first rows of a block: those of token_ids.

    What it holds already stays; what it holds beyond, and differs, is removed. False: the block is none that fits,
    and nothing of it was appended. Check sequence.awaits_checkpoint, which this sets for models with checkpoints:
    follow with restore_checkpoint, or sequence.clear().
    """
    empty = _empty_of_kind(sequence.context, *_WITH_BLOCKS)
    end = start + len(token_ids)
    if not token_ids or not 0 <= start <= sequence.num_tokens or end > sequence.n_ctx:
        raise ValueError(
            f"rows [{start}, {end}) after {sequence.num_tokens} tokens, of {sequence.n_ctx} at most"
        )
    try:
        rows = empty.blocks.parse(block)
    except UnknownLayout:
        return False
    if rows.cells[0, 0] != start or rows.num_rows < len(token_ids):
        return False
    held = sequence.token_ids[start:end]
    num_common = next(
        (index for index, (old, new) in enumerate(zip(held, token_ids, strict=False)) if old != new),
        len(held),
    )
    if num_common == len(token_ids):
        return True
    sequence.keep_rows(start + num_common, complete=empty.kind == StateKind.BLOCKS)
    missing = block
    if num_common or rows.num_rows > len(token_ids):
        # Also keeps rows that nobody asked for from taking the last free cells.
        behind = block[rows.offset + rows.size :]
        missing = pick_rows(block, rows, np.s_[num_common : len(token_ids)], behind)
    return sequence.append_rows(missing, token_ids[num_common:], complete=empty.kind == StateKind.BLOCKS)


def capture_checkpoint(sequence: Sequence) -> StateBytes:
    """What blocks do not hold of the sequence, valid at exactly sequence.num_tokens.

    Raises IncompleteState, or UnknownLayout as capture_block does.
    """
    empty = _empty_of_kind(sequence.context, *_WITH_CHECKPOINTS)
    if sequence.awaits_checkpoint or not sequence.num_tokens:
        raise IncompleteState("a sequence that is empty, or waits for a checkpoint itself")
    state = sequence.read_partial_state()
    section = parse_state(state, empty.partial).sections[0]
    if isinstance(section, AttentionSection):
        others = state[section.offset + section.size :]
        if sequence.window_start > section.positions.min():
            # Rows that only fill their cells; the library still writes one that no token sees any more.
            in_order = np.argsort(section.positions)
            first_seen = sequence.num_tokens - sequence.model.n_swa + 1
            seen = in_order[section.positions[in_order] >= first_seen]
            if not seen.size or sequence.window_start > section.positions[seen[0]]:
                raise IncompleteState("the window was restored for a later position")
            state = pick_rows(state, section, seen, others)
        else:
            state = _in_order(state, section, others)
    _checkpoint_section(state, empty.partial, sequence.num_tokens, sequence.model.n_swa)
    return state


def restore_checkpoint(sequence: Sequence, checkpoint: StateBytes, token_ids: ListOf[TokenId]) -> bool:
    """Bring the sequence to the checkpoint's position: it then holds token_ids, and nothing else.

    Unless the model has checkpoints only, the sequence must hold these tokens' blocks, and may hold more.
    False: this is no checkpoint for token_ids, and nothing was changed; or the library refused it, and the sequence
    is empty.
    """
    empty = _empty_of_kind(sequence.context, *_WITH_CHECKPOINTS)
    try:
        section = _checkpoint_section(checkpoint, empty.partial, len(token_ids), sequence.model.n_swa)
    except (UnknownLayout, IncompleteState):
        return False
    if empty.kind == StateKind.CHECKPOINTS_ONLY:
        return sequence.write_state(checkpoint, token_ids)
    if sequence.token_ids[: len(token_ids)] != list(token_ids):
        raise ValueError("the blocks of a checkpoint's tokens are restored before it")
    window_start = 0
    if isinstance(section, AttentionSection):
        window_start = len(token_ids) - section.num_rows
        taken = place_window(sequence, checkpoint, section)
    else:
        taken = sequence.append_partial_state(checkpoint)
    if not taken:
        sequence.clear()
        return False
    return sequence.complete_partial_state(len(token_ids), window_start)


# What an empty sequence looks like is the same as long as a context lives, and is asked for every block.
_empty_of: WeakKeyDictionary[Context, _Empty | None] = WeakKeyDictionary()


def _empty(context: Context) -> _Empty | None:
    """None: the layout is not known."""
    if context not in _empty_of:
        _empty_of[context] = _read_empty(context)
    return _empty_of[context]


def _read_empty(context: Context) -> _Empty | None:
    header = context.model.header
    if f"{header.architecture}.attention.key_length_mla" in header.metadata:
        return None  # latent attention stores no V
    if not context.flash_attention:
        return None  # V lies in columns, so no token's row is in one piece
    state, partial = context.read_empty_states()
    try:
        layout, partial_layout = parse_state(state), parse_state(partial)
    except UnknownLayout:
        return None
    kind = _KINDS.get((layout.kinds, partial_layout.kinds))
    if kind is None or (layout.kinds == (_A, _A) and not context.num_window_cells):
        return None
    behind_first = state[HEADER_BYTES + EMPTY_ATTENTION_BYTES :]
    return _Empty(kind, layout, partial_layout, behind_first, BlockLayouts(layout))


def _empty_of_kind(context: Context, *kinds: StateKind) -> _Empty:
    empty = _empty(context)
    if empty is None or empty.kind not in kinds:
        raise ValueError(f"not for a model whose state is {empty.kind if empty else StateKind.WHOLE}")
    return empty


def _in_order(state: StateBytes, section: AttentionSection, other_sections: StateBytes) -> StateBytes:
    """Rows come in the order of the cache's cells; sorted by position, equal rows give equal bytes."""
    if np.all(np.diff(section.positions) > 0):
        return pick_rows(state, section, np.s_[:], other_sections)
    return pick_rows(state, section, np.argsort(section.positions, kind="stable"), other_sections)


def _checkpoint_section(
    state: StateBytes, like: StateLayout, num_tokens: int, n_swa: int
) -> AttentionSection | RecurrentSection:
    """A checkpoint's one section. Raises UnknownLayout or IncompleteState unless the token at num_tokens can be
    decoded after it."""
    (section,) = parse_state(state, like).sections
    if isinstance(section, RecurrentSection):
        if section.position != num_tokens - 1:
            raise IncompleteState(f"a recurrent state at {section.position}, not at {num_tokens - 1}")
        return section
    first = num_tokens - section.num_rows
    window_begins = max(0, num_tokens - n_swa + 1)
    if first > window_begins or not np.array_equal(section.positions, np.arange(first, num_tokens)):
        raise IncompleteState(f"not all rows of the window that ends at {num_tokens}")
    return section
