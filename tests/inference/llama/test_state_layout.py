"""The parser of sequence states, against states built here from the layout's description."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.llama.state_layout import (
    AttentionSection,
    RecurrentSection,
    SectionKind,
    StateLayout,
    UnknownLayout,
    cut_rows,
    parse_block,
    parse_state,
)

F32, F16, Q8_0, Q4_0 = 0, 1, 8, 2
TYPE_BYTES = {F32: 4, F16: 2, Q8_0: 34, Q4_0: 18}
State = npt.NDArray[np.uint8]


@dataclass
class Attention:
    """Rows are drawn from rows(…), so that where each one ends up can be told."""

    positions: list[int]
    k_row_sizes: list[int]
    v_row_sizes: list[int]
    ggml_type: int = F16
    extra_words: int = 0


@dataclass
class Recurrent:
    position: int | None
    num_layers: int
    row_sizes: tuple[int, int]
    num_recurrent: int


@dataclass
class Built:
    data: bytearray = field(default_factory=bytearray)
    # Bytes of which each bit must be as it is.
    structure: list[int] = field(default_factory=list)

    def add(self, layout: str, *values: int, fixed: bool = True) -> None:
        packed = struct.pack("<" + layout, *values)
        if fixed:
            self.structure += range(len(self.data), len(self.data) + len(packed))
        self.data += packed

    @property
    def state(self) -> State:
        return np.frombuffer(bytes(self.data), dtype=np.uint8)


def row(layer: int, part: str, position: int, size: int) -> bytes:
    """No byte of it is 0 or 1, so that no row reads like structure."""
    seed = (layer * 7919 + position * 31 + (part == "v") * 13) % 251
    return bytes(2 + (seed + 17 * index) % 253 for index in range(size))


def build(sections: list[Attention | Recurrent], seq_id: int = 1) -> Built:
    built = Built()
    built.add("I", 0xAF143CD8)
    has_rows = any(isinstance(section, Attention) and section.positions for section in sections)
    built.add("I", seq_id, fixed=has_rows)
    for section in sections:
        if isinstance(section, Attention):
            _add_attention(built, section, seq_id)
        else:
            _add_recurrent(built, section)
    return built


def _add_attention(built: Built, section: Attention, seq_id: int) -> None:
    built.add("II", 1, len(section.positions))
    if not section.positions:
        return
    for position in section.positions:
        built.add("I", position, fixed=False)
        built.add("I", 1)
        built.add(f"{section.extra_words}I", *[position] * section.extra_words, fixed=False)
        built.add("I", seq_id)
    built.add("II", 0, len(section.k_row_sizes))
    for part, sizes in (("k", section.k_row_sizes), ("v", section.v_row_sizes)):
        for layer, size in enumerate(sizes):
            built.add("i", section.ggml_type, fixed=len(sizes) > 1)
            built.add("Q", size)
            for position in section.positions:
                built.data += row(layer, part, position, size)


def _add_recurrent(built: Built, section: Recurrent) -> None:
    built.add("I", 0 if section.position is None else 1)
    if section.position is not None:
        built.add("I", section.position, fixed=False)
        built.add("I", 0)
    built.add("II", 0, section.num_layers)
    for part, size in zip("rs", section.row_sizes, strict=True):
        for layer in range(section.num_recurrent):
            built.add("iQ", F32, size)
            if section.position is not None:
                built.data += row(layer, part, section.position, size)


def emptied(sections: list[Attention | Recurrent]) -> StateLayout:
    """The layout of an empty sequence's state in the context that such sections come from."""
    empty: list[Attention | Recurrent] = [
        Attention([], [], [])
        if isinstance(section, Attention)
        else Recurrent(None, section.num_layers, section.row_sizes, section.num_recurrent)
        for section in sections
    ]
    return parse_state(build(empty).state)


@st.composite
def attentions(draw: st.DrawFn, *, consecutive: bool = False) -> Attention:
    count = draw(st.integers(1, 6))
    start = draw(st.integers(0, 1000))
    positions = list(range(start, start + count))
    if not consecutive:
        positions = draw(st.permutations(positions))
    ggml_type = draw(st.sampled_from(list(TYPE_BYTES)))
    sizes = st.integers(1, 3).map(lambda units: units * TYPE_BYTES[ggml_type])
    n_layer = draw(st.integers(1, 3))
    k = draw(st.lists(sizes, min_size=n_layer, max_size=n_layer))
    v = draw(st.lists(sizes, min_size=n_layer, max_size=n_layer))
    return Attention(positions, k, v, ggml_type, draw(st.sampled_from([0, 3])))


@st.composite
def recurrents(draw: st.DrawFn) -> Recurrent:
    num_recurrent = draw(st.integers(1, 3))
    row_sizes = (4 * draw(st.integers(1, 5)), 4 * draw(st.integers(0, 5)))
    return Recurrent(
        draw(st.one_of(st.none(), st.integers(0, 10_000))),
        num_recurrent + draw(st.integers(0, 2)),
        row_sizes,
        num_recurrent,
    )


@st.composite
def states(draw: st.DrawFn) -> list[Attention | Recurrent]:
    """Sections as the library combines them; what is noted of a row is the same in all of a context."""
    first = draw(attentions())
    second = draw(attentions())
    second.extra_words = first.extra_words
    window = draw(st.sampled_from([second, Attention([], [], [])]))
    recurrent = draw(recurrents())
    return draw(
        st.sampled_from(
            [[first], [first, window], [first, recurrent], [recurrent], [first, window, recurrent]]
        )
    )


@given(states(), st.integers(0, 3))
def test_what_was_built_is_found_again(sections: list[Attention | Recurrent], seq_id: int) -> None:
    state = build(sections, seq_id).state
    layout = parse_state(state, emptied(sections))
    assert layout.seq_id == seq_id
    assert len(layout.sections) == len(sections)
    for found, built in zip(layout.sections, sections, strict=True):
        if isinstance(built, Attention):
            assert isinstance(found, AttentionSection)
            assert found.positions.tolist() == built.positions
            assert [tensor.row_size for tensor in found.k] == (built.k_row_sizes if built.positions else [])
            assert [tensor.row_size for tensor in found.v] == (built.v_row_sizes if built.positions else [])
            for part, tensors in (("k", found.k), ("v", found.v)):
                for layer, tensor in enumerate(tensors):
                    assert tensor.ggml_type == built.ggml_type
                    for index, position in enumerate(built.positions):
                        start = tensor.offset + index * tensor.row_size
                        stored = state[start : start + tensor.row_size].tobytes()
                        assert stored == row(layer, part, position, tensor.row_size)
        else:
            assert isinstance(found, RecurrentSection)
            assert found.position == built.position
            assert found.num_layers == built.num_layers
            assert len(found.tensors) == 2 * built.num_recurrent
    ends = [section.offset + section.size for section in layout.sections]
    assert [section.offset for section in layout.sections] == [8, *ends[:-1]]
    assert ends[-1] == state.size


@given(states(), st.data())
def test_a_state_that_ends_early_or_goes_on_is_refused(
    sections: list[Attention | Recurrent], data: st.DataObject
) -> None:
    state = build(sections).state
    length = data.draw(st.integers(0, state.size - 1))
    with pytest.raises(UnknownLayout):
        parse_state(state[:length], emptied(sections))
    longer = np.concatenate([state, np.full(data.draw(st.integers(1, 20)), 0, np.uint8)])
    with pytest.raises(UnknownLayout):
        parse_state(longer, emptied(sections))


@given(states(), st.data())
def test_a_flipped_bit_in_the_structure_is_refused(
    sections: list[Attention | Recurrent], data: st.DataObject
) -> None:
    built = build(sections)
    state = built.state.copy()
    state[data.draw(st.sampled_from(built.structure))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(UnknownLayout):
        parse_state(state, emptied(sections))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(UnknownLayout):
        parse_state(np.frombuffer(content, dtype=np.uint8))


def test_the_sections_of_an_empty_state_are_told_apart() -> None:
    empty = build([Attention([], [], []), Attention([], [], []), Recurrent(None, 4, (8, 12), 2)])
    attention, recurrent = SectionKind.ATTENTION, SectionKind.RECURRENT
    assert parse_state(empty.state).kinds == (attention, attention, recurrent)


@given(attentions(consecutive=True), recurrents(), st.data())
def test_cutting_a_block_gives_the_block_of_fewer_rows(
    attention: Attention, recurrent: Recurrent, data: st.DataObject
) -> None:
    recurrent.position = None
    others: list[Attention | Recurrent] = data.draw(
        st.sampled_from([[], [Attention([], [], [])], [recurrent]])
    )
    block = build([attention, *others]).state
    first = data.draw(st.integers(0, len(attention.positions) - 1))
    last = data.draw(st.integers(first + 1, len(attention.positions)))
    kept = attention.positions[first:last]
    fewer = Attention(
        kept, attention.k_row_sizes, attention.v_row_sizes, attention.ggml_type, attention.extra_words
    )
    assert cut_rows(block, first, last).tobytes() == build([fewer, *others]).state.tobytes()


@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 1), (-1, 2), (0, 4)])
def test_rows_that_a_block_does_not_have_cannot_be_cut_from_it(first: int, last: int) -> None:
    block = build([Attention([5, 6, 7], [64], [64])]).state
    with pytest.raises(ValueError, match="a block that has 3"):
        cut_rows(block, first, last)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ([Attention([6, 5, 7], [64], [64])], "not consecutive"),
        ([Attention([5, 7], [64], [64])], "not consecutive"),
        ([Attention([5, 5], [64], [64])], "not consecutive"),
        ([Attention([], [], [])], "without rows"),
        ([Attention([5], [64], [64]), Attention([5], [64], [64])], "another section"),
        ([Recurrent(None, 1, (4, 4), 1)], "begins with a recurrent"),
    ],
    ids=["wrong order", "a gap", "a position twice", "empty", "rows in a window", "recurrent"],
)
def test_a_state_that_is_no_block_is_refused(sections: list[Attention | Recurrent], reason: str) -> None:
    with pytest.raises(UnknownLayout, match=reason):
        parse_block(build(sections).state)


def test_transposed_v_and_several_streams_are_refused() -> None:
    state = build([Attention([5], [64], [64])]).state
    v_trans, n_stream = 8 + 8 + 12, 8
    for offset in (v_trans, n_stream):
        changed = state.copy()
        changed[offset] += 1
        with pytest.raises(UnknownLayout, match=r"transposed|streams"):
            parse_state(changed)
