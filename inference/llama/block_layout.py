"""Parsing many blocks of one context: they differ in positions and rows only, so most need no second parse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.llama.state_layout import (
    EMPTY_ATTENTION_BYTES,
    HEADER_BYTES,
    AttentionSection,
    StateBytes,
    StateLayout,
    check_block_positions,
    check_cells,
    parse_block,
)

_CELLS_OFFSET = HEADER_BYTES + EMPTY_ATTENTION_BYTES
_SEQ_ID_OFFSET = 4
# Beyond it the last position of some block would be negative to the library.
_MAX_START = 2**30


@dataclass(frozen=True, slots=True, eq=False)
class _ParsedBlock:
    """fixed: where the bytes are that lie neither in cells nor in rows; their values are in `values`. from_0: its cells,
    with positions from 0 on."""

    section: AttentionSection
    from_0: npt.NDArray[np.uint32]
    fixed: npt.NDArray[np.intp]
    values: StateBytes


class BlockLayouts:
    """like: layout of an empty sequence's state in the context, as for parse_state."""

    def __init__(self, like: StateLayout) -> None:
        self._like = like
        self._parsed: dict[int, _ParsedBlock] = {}

    def parse(self, block: StateBytes) -> AttentionSection:
        """As parse_block. A block as long as one that was parsed, whose every byte outside of cells and rows is the
        same, has the same layout; what its cells say is checked anew. Raises UnknownLayout."""
        known = self._parsed.get(block.size)
        if known is None or not np.array_equal(block[known.fixed], known.values):
            section = parse_block(block, self._like)
            fixed = _fixed_bytes(block.size, section)
            from_0 = section.cells.copy()
            from_0[:, 0] -= section.cells[0, 0]
            self._parsed[block.size] = _ParsedBlock(section, from_0, fixed, block[fixed])
            return section
        from_0 = known.from_0
        cells = block[_CELLS_OFFSET : _CELLS_OFFSET + from_0.nbytes].view("<u4").reshape(from_0.shape)
        like = known.section
        section = AttentionSection(like.offset, like.size, cells, like.k, like.v)
        expected = from_0.copy()
        expected[:, 0] += cells[0, 0]
        if cells[0, 0] > _MAX_START or not np.array_equal(cells, expected):
            # Whatever else its cells may say (positions on several axes).
            (seq_id,) = block[_SEQ_ID_OFFSET:HEADER_BYTES].view("<u4")
            check_cells(cells, int(seq_id))
            check_block_positions(section)
        return section


def _fixed_bytes(size: int, section: AttentionSection) -> npt.NDArray[np.intp]:
    is_fixed = np.ones(size, dtype=bool)
    is_fixed[_CELLS_OFFSET : _CELLS_OFFSET + section.cells.nbytes] = False
    for tensor in section.k + section.v:
        is_fixed[tensor.offset : tensor.offset + section.num_rows * tensor.row_size] = False
    return np.flatnonzero(is_fixed)
