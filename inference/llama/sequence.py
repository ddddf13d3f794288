"""One sequence of a context: the tokens whose KV rows it really holds, and its state as bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence as ListOf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from inference.llama.state_layout import StateBytes
from inference.messages import TokenId

if TYPE_CHECKING:
    from inference.llama.context import Context
    from inference.llama.model import Model

# Of the library's seq_ids the one that is empty between calls: rows pass through it on their way out of a sequence and
# in. Blocks bear its number, so it is the same in every context.
SCRATCH_ID = 0
_PARTIAL_ONLY = 1


class BatchPart(NamedTuple):
    """The next tokens of one sequence, at least one; logits are kept for the last one if wanted."""

    sequence: Sequence
    token_ids: ListOf[TokenId]
    want_logits: bool


class Sequence:
    """token_ids are the ids whose KV rows the sequence really holds, by position; they are changed only here,
    after the library did, and read back from it when a decode fails."""

    def __init__(self, context: Context, seq_id: int) -> None:
        self.context = context
        self.seq_id = seq_id
        self._llama = context.model.llama
        self._memory = context.memory
        self.token_ids: list[TokenId] = []
        # Attention rows were appended whose windowed or recurrent layers' state is not there yet.
        self.awaits_checkpoint = False
        # Windowed layers' rows before this position only fill their cells (see window_cells).
        self.window_start = 0
        # Where in the last batch its last token stood.
        self.logits_index = -1
        # Another sequence held rows while this one did: its rows lie where there was room (see lies_as_if_alone).
        self._had_company = False
        self._appends_follow = False

    @property
    def model(self) -> Model:
        return self.context.model

    @property
    def n_ctx(self) -> int:
        return self.context.n_ctx

    @property
    def num_window_cells(self) -> int:
        return self.context.num_window_cells

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def is_alone(self) -> bool:
        """No other sequence of the context holds anything."""
        return all(other is self or not other.token_ids for other in self.context.sequences)

    @property
    def lies_as_if_alone(self) -> bool:
        """Its rows lie in the cells that they would have had in an empty context. Elsewhere attention runs over more
        cells, and sums in another order."""
        return not self._had_company

    def _note_company(self) -> None:
        holding = [sequence for sequence in self.context.sequences if sequence.token_ids]
        if len(holding) > 1:
            for sequence in holding:
                sequence._had_company = True

    def decode(self, token_ids: ListOf[TokenId], *, want_logits: bool) -> None:
        """A batch of this sequence alone; see Context.decode."""
        self.context.decode([BatchPart(self, token_ids, want_logits)])

    def logits(self) -> npt.NDArray[np.float32]:
        """Of its last token in the last batch; see Context.logits."""
        return self.context.logits(self.logits_index)

    def extend(self, token_ids: ListOf[TokenId]) -> None:
        """Context.decode computed their rows."""
        was_empty = not self.token_ids
        self.token_ids.extend(token_ids)
        # Between those that hold something already, nothing has changed.
        if was_empty:
            self._note_company()

    def pos_min(self) -> int | None:
        """The first position whose rows every layer still holds (above 0 once a sliding window has moved on)."""
        position = self._llama.llama_memory_seq_pos_min(self._memory, self.seq_id)
        return None if position < 0 else max(position, self.window_start)

    def state_pos_min(self) -> int:
        """The first position whose rows every layer still holds after the state was written out and read back.

        The library leaves out the rows of windowed layers that the next token could not see any more
        (llama_kv_cache::state_write), also where memory still has them.
        """
        held = self.pos_min() or 0
        n_swa = self.model.n_swa
        return max(held, self.num_tokens - n_swa) if n_swa else held

    def take_back(self, num_decoded: int) -> None:
        """After a batch with num_decoded tokens of it failed: read from the library what the sequence holds, and go
        back to what it held before."""
        num_tokens, held = self.num_tokens, self._end()
        if (
            # A recurrent state that took in part of a batch cannot be told from one that did not.
            self.model.is_recurrent
            or (self.lies_as_if_alone and not self._in_one_round(num_tokens, num_tokens + num_decoded))
            or held < num_tokens
            or (held > num_tokens and not self._remove_from(num_tokens))
            or (self.model.n_swa and (self.pos_min() or 0) > max(0, num_tokens - self.model.n_swa + 1))
        ):
            self.clear()

    def _remove_from(self, num_tokens: int) -> bool:
        return bool(self._llama.llama_memory_seq_rm(self._memory, self.seq_id, num_tokens, -1))

    def keeps_cells(self, num_tokens: int) -> bool:
        """Whether, after truncate(num_tokens), windowed layers' rows come to lie in the cells that they would have had
        without it (see window_cells for why that matters). The library goes on at the first cell that is free, which
        is another one once the ring has begun its next round."""
        return num_tokens >= self.num_tokens or self._in_one_round(num_tokens, self.num_tokens)

    def _in_one_round(self, start: int, end: int) -> bool:
        """Whether the positions [start, end) lie within one round of the windowed layers' ring of cells."""
        cells = self.num_window_cells
        return not cells or start // cells == (end - 1) // cells

    def truncate(self, num_tokens: int) -> bool:
        """Keep the first num_tokens. False: this model's state cannot be cut there, and nothing was changed."""
        if num_tokens >= self.num_tokens:
            return num_tokens == self.num_tokens
        if num_tokens == 0:
            self.clear()
            return True
        if not self._remove_from(num_tokens):
            return False
        del self.token_ids[num_tokens:]
        return True

    def clear(self) -> None:
        if self.is_alone:
            # Only this lets the next row lie in the first cell, whatever was there before.
            self.context.clear()
            return
        self._llama.llama_memory_seq_rm(self._memory, self.seq_id, -1, -1)
        self.forget()

    def forget(self) -> None:
        """The library has emptied it."""
        self.token_ids.clear()
        self.awaits_checkpoint = False
        self.window_start = 0
        self._had_company = False

    def state_size(self) -> int:
        """Bytes of its state, as the library counts them now; 0 for an empty sequence."""
        return self.context.state_size_of(self.seq_id, 0) if self.token_ids else 0

    def read_state(self) -> StateBytes:
        """The sequence's state. Raises EngineError if the library writes another size than it announced."""
        return self.context.read_state_of(self.seq_id, 0) if self.token_ids else np.empty(0, np.uint8)

    def read_partial_state(self) -> StateBytes:
        """Of the sequence's state what cannot be cut into rows (all of it where the library knows no such part)."""
        return self.context.read_state_of(self.seq_id, _PARTIAL_ONLY)

    def read_rows(self, start: int, end: int) -> StateBytes:
        """The state of a sequence that holds the attention rows of [start, end) only, as far as the library still
        has them; its recurrent part, if there is one, is the sequence's present one."""
        copy, remove = self._llama.llama_memory_seq_cp, self._llama.llama_memory_seq_rm
        try:
            copy(self._memory, self.seq_id, SCRATCH_ID, start, end)
            return self.context.read_state_of(SCRATCH_ID, 0)
        finally:
            remove(self._memory, SCRATCH_ID, -1, -1)

    def write_state(self, state: StateBytes, token_ids: ListOf[TokenId]) -> bool:
        """Replace the sequence by a stored one. False: the library refused it, and the sequence is empty."""
        self.clear()
        if not self.context.write_state_of(state, self.seq_id, 0) or self._end() != len(token_ids):
            self.clear()
            return False
        self.extend(token_ids)
        return True

    @contextlib.contextmanager
    def several_appends(self) -> Iterator[None]:
        """Inside, append_rows need not empty the scratch sequence behind it: the library does before the next state.
        Looking through all cells for it takes as long as a small block's copy. For complete rows only."""
        self._appends_follow = True
        try:
            yield
        finally:
            self._appends_follow = False
            self._llama.llama_memory_seq_rm(self._memory, SCRATCH_ID, -1, -1)

    def append_rows(self, state: StateBytes, token_ids: ListOf[TokenId], *, complete: bool) -> bool:
        """Append the attention rows of a state that holds them at exactly the sequence's next positions.

        complete: the model has no other layers; else decoding waits for complete_partial_state.
        False: the library refused the state, and nothing was changed.
        """
        # Where there are other layers too, what the library tells of positions is theirs.
        end = self.num_tokens + len(token_ids) if complete else None
        if not self._append(state, 0, end):
            return False
        self.extend(token_ids)
        self.awaits_checkpoint = not complete
        return True

    def append_partial_state(self, state: StateBytes) -> bool:
        """Let windowed layers take up a partial state's rows behind theirs, and recurrent ones its state in place of
        theirs. False: the library refused it, and nothing was changed. Decoding waits for complete_partial_state."""
        self.awaits_checkpoint = True
        return self._append(state, _PARTIAL_ONLY, None)

    def drop_partial_state(self, stand_in: StateBytes, position: int) -> bool:
        """Give up the windowed layers' rows and the recurrent state, which the library can only replace: by
        stand_in's one row at a position that no other row has, removed again. False: the library refused it."""
        self.awaits_checkpoint = True
        return self.context.write_state_of(stand_in, self.seq_id, _PARTIAL_ONLY) and self._remove_from(
            position
        )

    def complete_partial_state(self, num_tokens: int, window_start: int) -> bool:
        """What was appended brought the sequence to num_tokens: remove what is later, and allow decoding.

        False: the library holds another number of tokens, and the sequence is empty now.
        """
        if not self._remove_from(num_tokens) or self._end() != num_tokens:
            self.clear()
            return False
        del self.token_ids[num_tokens:]
        self.awaits_checkpoint = False
        self.window_start = window_start
        return True

    def keep_rows(self, num_tokens: int, *, complete: bool) -> None:
        """Keep the attention rows of the first num_tokens, also where other layers cannot go back with them.

        complete: as in append_rows.
        """
        if num_tokens == self.num_tokens:
            return
        if self.model.is_recurrent:
            # A copy of no rows from the empty scratch sequence: only the recurrent state gives way, to none.
            self._llama.llama_memory_seq_cp(self._memory, SCRATCH_ID, self.seq_id, 0, 0)
        self.awaits_checkpoint = not complete
        if not self.truncate(num_tokens):
            self.clear()

    def _append(self, state: StateBytes, flags: int, end: int | None) -> bool:
        """end: the position behind the state's last row, if that tells that all of it was taken in; else its size is
        asked for, which takes the library longer than a small block's copy."""
        copy, remove = self._llama.llama_memory_seq_cp, self._llama.llama_memory_seq_rm
        try:
            if not self.context.write_state_of(state, SCRATCH_ID, flags):
                return False
            if end is None:
                if self.context.state_size_of(SCRATCH_ID, flags) != state.size:
                    return False
            elif self._llama.llama_memory_seq_pos_max(self._memory, SCRATCH_ID) != end - 1:
                return False
            # Both sequences share the cells then: nothing is copied.
            copy(self._memory, SCRATCH_ID, self.seq_id, -1, -1)
            return True
        finally:
            if not self._appends_follow:
                remove(self._memory, SCRATCH_ID, -1, -1)

    def _end(self) -> int:
        """Position behind the last one that all kinds of layers hold."""
        return int(self._llama.llama_memory_seq_pos_max(self._memory, self.seq_id)) + 1
