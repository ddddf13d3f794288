"""The bytes of one sequence's state (llama_state_seq_get_data), parsed strictly, and cut between rows.

Little-endian: u32 magic, u32 seq_id, then the sections.
Attention: u32 n_stream, u32 rows; if there are rows, for each u32 position, u32 1, [u32 x, u32 y, u32 token,]
u32 seq_id; u32 v_trans, u32 n_layer; then for each layer's K, and again for V: i32 type, u64 row_size, the rows.
What is in brackets is there for models with multi-axis RoPE.
Recurrent: u32 cells (0 or 1), for the one u32 position, u32 0; u32 s_trans, u32 n_layer; then the R, and
again the S, of each layer that has them: i32 type, u64 row_size, the cell's row if there is a cell.

A **block** is a state whose first section holds attention rows of consecutive positions, in order; its other
sections are empty.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import gguf
import numpy as np
import numpy.typing as npt

StateBytes = npt.NDArray[np.uint8]

MAGIC = 0xAF143CD8
HEADER_BYTES = 8
EMPTY_ATTENTION_BYTES = 8
_TENSOR_HEAD = struct.Struct("<iQ")
_CELL_WORDS = 3
_CELL_WORDS_MULTI_AXIS = 6
_TYPE_BYTES = {int(ggml_type): size for ggml_type, (_, size) in gguf.GGML_QUANT_SIZES.items()}


class UnknownLayout(Exception):
    """The state is not laid out as this module knows it; the message says where."""


class SectionKind(StrEnum):
    ATTENTION = "attention"
    RECURRENT = "recurrent"


@dataclass(frozen=True, slots=True)
class TensorRows:
    """One tensor of one layer: its rows lie behind each other in the state. offset, row_size: bytes."""

    ggml_type: int
    row_size: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSection:
    """cells: what the library notes of each row, shape (rows, 3 or 6), in the order of the cache's cells, which
    need not be that of positions. offset, size: bytes."""

    offset: int
    size: int
    cells: npt.NDArray[np.uint32]
    k: tuple[TensorRows, ...]
    v: tuple[TensorRows, ...]

    @property
    def kind(self) -> SectionKind:
        return SectionKind.ATTENTION

    @property
    def num_rows(self) -> int:
        return len(self.cells)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        return self.cells[:, 0].astype(np.int64)


@dataclass(frozen=True, slots=True)
class RecurrentSection:
    """position: of the last token that the state took in; None for no cell. offset, size: bytes."""

    offset: int
    size: int
    position: int | None
    num_layers: int
    tensors: tuple[TensorRows, ...]

    @property
    def kind(self) -> SectionKind:
        return SectionKind.RECURRENT

    @property
    def num_rows(self) -> int:
        return 0 if self.position is None else 1

    @property
    def shape(self) -> tuple[int, list[tuple[int, int]]]:
        """What is the same in all states of a model."""
        return self.num_layers, [(tensor.ggml_type, tensor.row_size) for tensor in self.tensors]


@dataclass(frozen=True, slots=True)
class StateLayout:
    seq_id: int
    sections: tuple[AttentionSection | RecurrentSection, ...]

    @property
    def kinds(self) -> tuple[SectionKind, ...]:
        return tuple(section.kind for section in self.sections)

    @property
    def has_attention_rows(self) -> bool:
        return any(section.num_rows for section in self.sections if section.kind == SectionKind.ATTENTION)

    @property
    def first_attention(self) -> AttentionSection:
        """Raises UnknownLayout if the state does not begin with attention rows' section."""
        first = self.sections[0]
        if not isinstance(first, AttentionSection):
            raise UnknownLayout("the state begins with a recurrent section")
        return first


def parse_state(state: StateBytes, like: StateLayout | None = None) -> StateLayout:
    """like: layout of an empty sequence's state in the same context; the sections, and the recurrent tensors, must
    be the same. None: whatever there is, where no recurrent section has a cell (one with a cell begins like an
    attention section).

    Raises UnknownLayout unless every byte is accounted for, in exactly one way.
    """
    layouts: list[StateLayout] = []
    reasons: list[UnknownLayout] = []
    for cell_words in (_CELL_WORDS, _CELL_WORDS_MULTI_AXIS):
        try:
            layouts.append(_Reader(state, cell_words).state(like))
        except UnknownLayout as error:
            # Its traceback would keep the state in a reference cycle.
            reasons.append(error.with_traceback(None))
        if layouts and not layouts[0].has_attention_rows:
            # Nothing in it would be read differently.
            return layouts[0]
    if len(layouts) > 1:
        raise UnknownLayout("the state can be read in more than one way")
    if not layouts:
        raise reasons[0]
    return layouts[0]


def parse_block(block: StateBytes, like: StateLayout | None = None) -> AttentionSection:
    """The section of a block that has rows. like: as in parse_state. Raises UnknownLayout if the state is no block."""
    layout = parse_state(block, like)
    section = layout.first_attention
    check_block_positions(section)
    if any(other.num_rows for other in layout.sections[1:]):
        raise UnknownLayout("a block with rows in another section")
    return section


def check_block_positions(section: AttentionSection) -> None:
    """Raises UnknownLayout unless there are rows, of consecutive positions in order."""
    if section.num_rows == 0:
        raise UnknownLayout("a block without rows")
    if not np.array_equal(section.positions, section.positions[0] + np.arange(section.num_rows)):
        raise UnknownLayout("a block's positions are not consecutive")


def check_cells(cells: npt.NDArray[np.uint32], seq_id: int) -> None:
    """cells: as in AttentionSection, of one row at least. Raises UnknownLayout."""
    if np.any(cells[:, 1] != 1) or np.any(cells[:, -1] != seq_id):
        raise UnknownLayout("a row that belongs to other sequences")
    if cells[:, 0].max() > np.iinfo(np.int32).max:
        raise UnknownLayout("a row at a negative position")


def cut_rows(block: StateBytes, first: int, last: int) -> StateBytes:
    """Rows [first, last) of a block as a block. Raises UnknownLayout if it is none, ValueError for other rows."""
    section = parse_block(block)
    if not 0 <= first < last <= section.num_rows:
        raise ValueError(f"rows [{first}, {last}) of a block that has {section.num_rows}")
    return pick_rows(block, section, np.s_[first:last], block[section.offset + section.size :])


def pick_rows(
    state: StateBytes,
    section: AttentionSection,
    rows: slice | npt.NDArray[np.intp],
    other_sections: StateBytes,
) -> StateBytes:
    """A state that begins with these rows of a section, in the order picked; the bytes of other_sections follow."""

    def picked(tensor: TensorRows) -> StateBytes:
        held = state[tensor.offset : tensor.offset + section.num_rows * tensor.row_size]
        return held.reshape(-1, tensor.row_size)[rows].reshape(-1)

    return _build(state, section, section.cells[rows], picked, other_sections)


def filler_rows(state: StateBytes, section: AttentionSection, positions: range) -> StateBytes:
    """A state of one section like this one, with rows of zeros at these positions."""
    cells = np.repeat(section.cells[:1], len(positions), axis=0)
    cells[:, 0] = positions

    def zeros(tensor: TensorRows) -> StateBytes:
        return np.zeros(len(positions) * tensor.row_size, dtype=np.uint8)

    return _build(state, section, cells, zeros, np.empty(0, dtype=np.uint8))


def _build(
    state: StateBytes,
    section: AttentionSection,
    cells: npt.NDArray[np.uint32],
    rows_of: Callable[[TensorRows], StateBytes],
    other_sections: StateBytes,
) -> StateBytes:
    after_cells = section.offset + EMPTY_ATTENTION_BYTES + section.cells.nbytes
    parts = [
        state[:HEADER_BYTES],
        np.array([1, len(cells)], dtype="<u4").view(np.uint8),
        np.ascontiguousarray(cells).view(np.uint8).reshape(-1),
        state[after_cells : after_cells + 8],
    ]
    for tensor in section.k + section.v:
        parts += [state[tensor.offset - _TENSOR_HEAD.size : tensor.offset], rows_of(tensor)]
    return np.concatenate([*parts, other_sections])


class _Reader:
    """One pass over a state. cell_words: how much to expect that is noted of each attention row."""

    def __init__(self, state: StateBytes, cell_words: int) -> None:
        if state.dtype != np.uint8 or state.ndim != 1:
            raise UnknownLayout("a state is one row of bytes")
        self._state = state
        self._memory = memoryview(state.data)
        self._offset = 0
        self._cell_words = cell_words

    def state(self, like: StateLayout | None) -> StateLayout:
        if self._word() != MAGIC:
            raise UnknownLayout("the state does not begin with the library's magic number")
        seq_id = self._word()
        sections: list[AttentionSection | RecurrentSection] = []
        if like is not None:
            for expected in like.sections:
                if isinstance(expected, RecurrentSection):
                    sections.append(self._recurrent(expected))
                else:
                    sections.append(self._attention(seq_id))
        while like is None and self._offset < len(self._state):
            attention = self._kind_by_first_word() == SectionKind.ATTENTION
            sections.append(self._attention(seq_id) if attention else self._recurrent(None))
        if self._offset < len(self._state):
            raise UnknownLayout(f"{len(self._state) - self._offset} bytes follow the last section")
        if not sections:
            raise UnknownLayout("a state without sections")
        return StateLayout(seq_id, tuple(sections))

    def _kind_by_first_word(self) -> SectionKind:
        (word,) = struct.unpack_from("<I", self._take(4))
        self._offset -= 4
        return SectionKind.ATTENTION if word else SectionKind.RECURRENT

    def _attention(self, seq_id: int) -> AttentionSection:
        start = self._offset
        if (n_stream := self._word()) != 1:
            raise UnknownLayout(f"{n_stream} streams instead of 1")
        num_rows, words = self._word(), self._cell_words
        cells = np.frombuffer(self._take(4 * num_rows * words), dtype="<u4").reshape(num_rows, words)
        if not num_rows:
            return AttentionSection(start, self._offset - start, cells, (), ())
        check_cells(cells, seq_id)
        if self._word() != 0:
            raise UnknownLayout("V is transposed")
        n_layer = self._word()
        k = self._tensors(n_layer, num_rows)
        v = self._tensors(n_layer, num_rows)
        return AttentionSection(start, self._offset - start, cells, k, v)

    def _recurrent(self, like: RecurrentSection | None) -> RecurrentSection:
        start = self._offset
        num_cells = self._word()
        if num_cells > 1:
            raise UnknownLayout(f"{num_cells} recurrent states for one sequence")
        position = self._word() if num_cells else None
        if position is not None and (position > np.iinfo(np.int32).max or self._word() != 0):
            raise UnknownLayout("a recurrent state at a negative position, or of other sequences")
        if self._word() != 0:
            raise UnknownLayout("S is transposed")
        num_layers = self._word()
        tensors: list[TensorRows] = []
        # The state does not say how many there are: without an example they end where it ends.
        while self._offset < len(self._state) and (like is None or len(tensors) < len(like.tensors)):
            tensors.append(self._tensor(num_cells))
        section = RecurrentSection(start, self._offset - start, position, num_layers, tuple(tensors))
        if like is not None and section.shape != like.shape:
            raise UnknownLayout("other recurrent tensors than this model's")
        if not tensors or len(tensors) % 2 or len(tensors) > 2 * num_layers:
            raise UnknownLayout(f"{len(tensors)} recurrent tensors in {num_layers} layers")
        return section

    def _tensors(self, count: int, num_rows: int) -> tuple[TensorRows, ...]:
        tensors: list[TensorRows] = []
        for _ in range(count):
            tensors.append(self._tensor(num_rows))
            if tensors[-1].ggml_type != tensors[0].ggml_type or tensors[-1].row_size == 0:
                raise UnknownLayout("the layers' rows are of several types, or a layer has none")
        return tuple(tensors)

    def _tensor(self, num_rows: int) -> TensorRows:
        ggml_type, row_size = _TENSOR_HEAD.unpack_from(self._take(_TENSOR_HEAD.size))
        type_bytes = _TYPE_BYTES.get(ggml_type)
        if type_bytes is None or row_size % type_bytes:
            raise UnknownLayout(f"rows of {row_size} bytes of type {ggml_type}")
        offset = self._offset
        self._take(num_rows * row_size)
        return TensorRows(ggml_type, row_size, offset)

    def _word(self) -> int:
        (word,) = struct.unpack_from("<I", self._take(4))
        return int(word)

    def _take(self, size: int) -> memoryview:
        start, self._offset = self._offset, self._offset + size
        if self._offset > len(self._state):
            raise UnknownLayout("the state ends early")
        return self._memory[start : self._offset]
