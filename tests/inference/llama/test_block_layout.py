"""A block parsed after others of its context is told apart as strictly as the first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference.llama.block_layout import BlockLayouts
from inference.llama.state_layout import AttentionSection, UnknownLayout, parse_block
from tests.inference.llama.test_state_layout import (
    Attention,
    Recurrent,
    State,
    attentions,
    build,
    emptied,
    recurrents,
)


def told(section: AttentionSection) -> tuple[object, ...]:
    return section.offset, section.size, section.cells.tolist(), section.k, section.v


def flip(state: State, bit: int) -> State:
    flipped = state.copy()
    flipped[bit // 8] ^= 1 << bit % 8
    return flipped


@given(attentions(consecutive=True), recurrents(), st.integers(0, 5000), st.data())
def test_the_next_block_is_read_as_it_would_be_alone(
    attention: Attention, recurrent: Recurrent, start: int, data: st.DataObject
) -> None:
    recurrent.position = None
    others: list[Attention | Recurrent] = data.draw(
        st.sampled_from([[], [Attention([], [], [])], [recurrent]])
    )
    like = emptied([attention, *others])
    layouts = BlockLayouts(like)
    layouts.parse(build([attention, *others]).state)
    moved = replace(attention, positions=list(range(start, start + len(attention.positions))))
    block = build([moved, *others]).state
    assert told(layouts.parse(block)) == told(parse_block(block, like))


@given(attentions(consecutive=True), st.data())
def test_a_flipped_bit_in_the_structure_is_refused_after_a_whole_block_too(
    attention: Attention, data: st.DataObject
) -> None:
    built = build([attention])
    layouts = BlockLayouts(emptied([attention]))
    layouts.parse(built.state)
    flipped = flip(
        built.state, 8 * data.draw(st.sampled_from(built.structure)) + data.draw(st.integers(0, 7))
    )
    try:
        section = layouts.parse(flipped)
    except UnknownLayout:
        return
    # A single layer's type is told by nothing else: then the strict parser takes it too.
    assert told(section) == told(parse_block(flipped))


def test_positions_are_checked_anew() -> None:
    layouts = BlockLayouts(emptied([Attention([5, 6], [64], [64])]))
    layouts.parse(build([Attention([5, 6], [64], [64])]).state)
    for positions in ([6, 5], [5, 7], [5, 5]):
        try:
            layouts.parse(build([Attention(positions, [64], [64])]).state)
        except UnknownLayout:
            continue
        raise AssertionError(positions)


def test_cells_are_the_new_blocks_own() -> None:
    layouts = BlockLayouts(emptied([Attention([5, 6], [64], [64])]))
    layouts.parse(build([Attention([5, 6], [64], [64])]).state)
    section = layouts.parse(build([Attention([7, 8], [64], [64])]).state)
    assert np.array_equal(section.positions, [7, 8])
