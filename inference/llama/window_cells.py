"""Puts the rows of windowed layers back into the very cells that they had.

These layers use their cells as a ring: in a context that began empty, position p lies in cell p modulo the number of
cells. Attention sums over cells in their order, in tiles and one part per thread, so the same rows in other cells
give other last bits (seen: logits 2.4 apart on a quantised model). So the cells before a restored window are filled
with rows that the window no longer lets anyone see.
"""

from __future__ import annotations

from inference.llama.sequence import Sequence
from inference.llama.state_layout import AttentionSection, StateBytes, filler_rows

# Above all positions, so that removing it removes nothing else.
_FAR_POSITION = 1 << 30
_FILLER_BYTES = 4 << 20


def place_window(sequence: Sequence, checkpoint: StateBytes, window: AttentionSection) -> bool:
    """Let a checkpoint take the place of all that windowed layers hold. window: its rows, in the order of positions.

    False: the library refused it; clear the sequence.
    """
    far = filler_rows(checkpoint, window, range(_FAR_POSITION, _FAR_POSITION + 1))
    if not sequence.drop_partial_state(far, _FAR_POSITION):
        return False
    if not sequence.is_alone:
        # Among others' rows no cell is the one that it had.
        return sequence.append_partial_state(checkpoint)
    first, num_cells = int(window.cells[0, 0]), sequence.num_window_cells
    # From the round before the one that the window begins in: some of its rows are left in the cells behind it.
    start = max(0, first // num_cells - 1) * num_cells
    step = min(sequence.model.n_swa, max(1, _FILLER_BYTES * window.num_rows // window.size))
    for position in range(start, first, step):
        filler = filler_rows(checkpoint, window, range(position, min(position + step, first)))
        if not sequence.append_partial_state(filler):
            return False
    return sequence.append_partial_state(checkpoint)
