"""Sole owner of a llama_context: what its one sequence holds, decoding, and the sequence's state as bytes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.llama.abort_flag import AbortFlag
from inference.llama.model import Model
from inference.llama.native_log import captured_native_log
from inference.llama.state_layout import StateBytes
from inference.messages import TokenId
from inference.request import EngineError, ErrorCode

_SEQUENCE = 0
# Empty between calls: rows pass through it on their way out of the sequence and in.
_SCRATCH = 1
_PARTIAL_ONLY = 1
# With flash attention V is stored like K, row by token, so state can be cut between tokens.
_FLASH_ATTENTION_ON = 1
_GGML_TYPE_F16 = 1
_DECODE_ABORTED = 2
_NO_FREE_CELLS = 1


class DecodeAborted(Exception):
    """The abort flag was set; the sequence holds what it held before the call."""


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What of a context's settings changes the meaning of KV bytes (see fingerprint) or their number."""

    n_ctx: int
    n_ubatch: int = 512
    n_threads: int = 1
    type_k: int = _GGML_TYPE_F16
    type_v: int = _GGML_TYPE_F16
    swa_full: bool = False


class Context:
    """One sequence in one KV cache. Not thread-safe: only the inference thread calls it.

    token_ids are the ids whose KV rows the sequence really holds, by position; they are changed only here,
    after the library did, and read back from it when a decode fails.
    """

    def __init__(self, model: Model, params: ContextParams) -> None:
        self._llama = llama = model.llama
        self.model = model
        self.params = params
        self.abort_flag = AbortFlag()
        self.token_ids: list[TokenId] = []
        self.num_decoded_tokens = 0
        # Attention rows were appended whose windowed or recurrent layers' state is not there yet.
        self.awaits_checkpoint = False
        # Windowed layers' rows before this position only fill their cells (see window_cells).
        self.window_start = 0
        native = llama.llama_context_default_params()
        native.n_ctx = params.n_ctx
        native.n_batch = native.n_ubatch = params.n_ubatch
        native.n_seq_max = 2
        # One stream for both sequences: seq_cp of some rows between streams aborts the process.
        native.kv_unified = True
        native.n_threads = native.n_threads_batch = params.n_threads
        native.flash_attn_type = _FLASH_ATTENTION_ON
        native.type_k, native.type_v = params.type_k, params.type_v
        native.swa_full = params.swa_full
        native.no_perf = True
        native.abort_callback = llama.ggml_abort_callback(self.abort_flag.callback_address)
        native.abort_callback_data = self.abort_flag.data_address
        with captured_native_log() as log:
            self._handle = llama.llama_init_from_model(model.handle, native)
        if not self._handle:
            raise EngineError(ErrorCode.MODEL_LOAD_FAILED, _why_no_context(log, params.n_ctx))
        self._memory = llama.llama_get_memory(self._handle)
        self._batch = llama.llama_batch_init(params.n_ubatch, 0, 1)
        self.kv_allocated_bytes = _allocated_bytes(log)
        self.flash_attention = bool(re.search(r"flash_attn\s*=\s*enabled", "\n".join(log)))
        window_cells = re.search(r"creating +SWA KV cache, size = (\d+) cells", "\n".join(log))
        self.num_window_cells = int(window_cells[1]) if window_cells else 0
        # The library rounds the context up; tokens past what was asked for are not used.
        self.n_ctx = min(params.n_ctx, llama.llama_n_ctx(self._handle))

    @property
    def handle(self) -> Any:
        """llama_context, for calls that another room makes on it (sampling)."""
        return self._handle

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def pos_min(self) -> int | None:
        """The first position whose rows every layer still holds (above 0 once a sliding window has moved on)."""
        position = self._llama.llama_memory_seq_pos_min(self._memory, _SEQUENCE)
        return None if position < 0 else max(position, self.window_start)

    def state_pos_min(self) -> int:
        """The first position whose rows every layer still holds after the state was written out and read back.

        The library leaves out the rows of windowed layers that the next token could not see any more
        (llama_kv_cache::state_write), also where memory still has them.
        """
        held = self.pos_min() or 0
        n_swa = self.model.n_swa
        return max(held, self.num_tokens - n_swa) if n_swa else held

    def decode(self, token_ids: Sequence[TokenId], *, want_logits: bool) -> None:
        """Append at most n_ubatch tokens to the sequence; logits are kept for the last one if wanted.

        Raises DecodeAborted, or EngineError where the library failed; the sequence then holds what it held
        before, or nothing if its rows could not be taken back.
        """
        if self.awaits_checkpoint:
            raise EngineError(
                ErrorCode.INTERNAL, "blocks were restored without the checkpoint that completes them"
            )
        count, start = len(token_ids), len(self.token_ids)
        batch = self._batch
        batch.n_tokens = count
        for index, token in enumerate(token_ids):
            batch.token[index] = token
            batch.pos[index] = start + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = _SEQUENCE
            batch.logits[index] = False
        batch.logits[count - 1] = want_logits
        self.num_decoded_tokens += count
        result = self._llama.llama_decode(self._handle, batch)
        if result == 0:
            self.token_ids.extend(token_ids)
            return
        self._take_back(start, count)
        if result == _DECODE_ABORTED:
            raise DecodeAborted
        if result == _NO_FREE_CELLS:
            raise EngineError(
                ErrorCode.DECODE_FAILED, "the KV cache is full: start a new chat or choose a larger context"
            )
        raise EngineError(
            ErrorCode.DECODE_FAILED,
            f"the model could not compute this step (code {result}; the log has more): send the message again",
        )

    def _take_back(self, num_tokens: int, num_decoded: int) -> None:
        """After num_decoded tokens failed: read from the library what the sequence holds, and go back to num_tokens."""
        held = self._end()
        if (
            # A recurrent state that took in part of a batch cannot be told from one that did not.
            self.model.is_recurrent
            or not self._in_one_round(num_tokens, num_tokens + num_decoded)
            or held < num_tokens
            or (held > num_tokens and not self._remove_from(num_tokens))
        ):
            self.clear()

    def _remove_from(self, num_tokens: int) -> bool:
        return bool(self._llama.llama_memory_seq_rm(self._memory, _SEQUENCE, num_tokens, -1))

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
        self._llama.llama_memory_clear(self._memory, False)
        self.token_ids.clear()
        self.awaits_checkpoint = False
        self.window_start = 0

    def state_size(self) -> int:
        """Bytes of the sequence's state, as the library counts them now; 0 for an empty sequence."""
        return self._state_size(_SEQUENCE, 0) if self.token_ids else 0

    def read_state(self) -> StateBytes:
        """The sequence's state. Raises EngineError if the library writes another size than it announced."""
        return self._read(_SEQUENCE, 0) if self.token_ids else np.empty(0, np.uint8)

    def read_partial_state(self) -> StateBytes:
        """Of the sequence's state what cannot be cut into rows (all of it where the library knows no such part)."""
        return self._read(_SEQUENCE, _PARTIAL_ONLY)

    def read_rows(self, start: int, end: int) -> StateBytes:
        """The state of a sequence that holds the attention rows of [start, end) only, as far as the library still
        has them; its recurrent part, if there is one, is the sequence's present one."""
        copy, remove = self._llama.llama_memory_seq_cp, self._llama.llama_memory_seq_rm
        try:
            copy(self._memory, _SEQUENCE, _SCRATCH, start, end)
            return self._read(_SCRATCH, 0)
        finally:
            remove(self._memory, _SCRATCH, -1, -1)

    def read_empty_states(self) -> tuple[StateBytes, StateBytes]:
        """An empty sequence's state and its partial state: they show what sections there are."""
        return self._read(_SCRATCH, 0), self._read(_SCRATCH, _PARTIAL_ONLY)

    def write_state(self, state: StateBytes, token_ids: Sequence[TokenId]) -> bool:
        """Replace the sequence by a stored one. False: the library refused it, and the sequence is empty."""
        self.clear()
        if not self._write(state, _SEQUENCE, 0) or self._end() != len(token_ids):
            self.clear()
            return False
        self.token_ids = list(token_ids)
        return True

    def append_rows(self, state: StateBytes, token_ids: Sequence[TokenId], *, complete: bool) -> bool:
        """Append the attention rows of a state that holds them at exactly the sequence's next positions.

        complete: the model has no other layers; else decoding waits for complete_partial_state.
        False: the library refused the state, and nothing was changed.
        """
        if not self._append(state, 0):
            return False
        self.token_ids.extend(token_ids)
        self.awaits_checkpoint = not complete
        return True

    def append_partial_state(self, state: StateBytes) -> bool:
        """Let windowed layers take up a partial state's rows behind theirs, and recurrent ones its state in place of
        theirs. False: the library refused it, and nothing was changed. Decoding waits for complete_partial_state."""
        self.awaits_checkpoint = True
        return self._append(state, _PARTIAL_ONLY)

    def drop_partial_state(self, stand_in: StateBytes, position: int) -> bool:
        """Give up the windowed layers' rows and the recurrent state, which the library can only replace: by
        stand_in's one row at a position that no other row has, removed again. False: the library refused it."""
        self.awaits_checkpoint = True
        return self._write(stand_in, _SEQUENCE, _PARTIAL_ONLY) and self._remove_from(position)

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
            self._llama.llama_memory_seq_cp(self._memory, _SCRATCH, _SEQUENCE, 0, 0)
        self.awaits_checkpoint = not complete
        if not self.truncate(num_tokens):
            self.clear()

    def _append(self, state: StateBytes, flags: int) -> bool:
        copy, remove = self._llama.llama_memory_seq_cp, self._llama.llama_memory_seq_rm
        try:
            if not self._write(state, _SCRATCH, flags) or self._state_size(_SCRATCH, flags) != state.size:
                return False
            # Both sequences share the cells then: nothing is copied.
            copy(self._memory, _SCRATCH, _SEQUENCE, -1, -1)
            return True
        finally:
            remove(self._memory, _SCRATCH, -1, -1)

    def _end(self) -> int:
        """Position behind the last one that all kinds of layers hold."""
        return int(self._llama.llama_memory_seq_pos_max(self._memory, _SEQUENCE)) + 1

    def _state_size(self, sequence: int, flags: int) -> int:
        return int(self._llama.llama_state_seq_get_size_ext(self._handle, sequence, flags))

    def _read(self, sequence: int, flags: int) -> StateBytes:
        size = self._state_size(sequence, flags)
        state = np.empty(size, dtype=np.uint8)
        written = self._llama.llama_state_seq_get_data_ext(
            self._handle, _address(state), size, sequence, flags
        )
        if written != size:
            raise EngineError(ErrorCode.INTERNAL, f"the library wrote {written} of {size} state bytes")
        return state

    def _write(self, state: StateBytes, sequence: int, flags: int) -> bool:
        """Whether the library took in all of a state; it empties the sequence first."""
        read = self._llama.llama_state_seq_set_data_ext(
            self._handle, _address(state), state.size, sequence, flags
        )
        return bool(read == state.size)

    def logits(self) -> npt.NDArray[np.float32]:
        """Logits of the last decoded token, shape (vocabulary size,); a copy."""
        pointer = self._llama.llama_get_logits_ith(self._handle, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.model.vocab.size,)).copy()

    def close(self) -> None:
        if self._handle is not None:
            self._llama.llama_batch_free(self._batch)
            self._llama.llama_free(self._handle)
            self._handle = None


def _address(state: StateBytes) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _allocated_bytes(log: Sequence[str]) -> int:
    """Bytes of the KV (and recurrent-state) buffers that the library says it allocated, to 0.01 MiB."""
    sizes = re.findall(r"(?:KV|RS) buffer size = +([0-9.]+) MiB", "\n".join(log))
    return round(sum(float(size) for size in sizes) * 2**20)


def _why_no_context(log: Sequence[str], n_ctx: int) -> str:
    text = "\n".join(log)
    if "alloc" in text or "memory" in text:
        return (
            f"not enough memory for a context of {n_ctx} tokens: choose a smaller context or fewer GPU layers"
        )
    return f"the model was loaded, but a context of {n_ctx} tokens could not be made (the log has more)"
