"""Sole owner of a llama_context: its sequences, decoding batches of their tokens, and their state as bytes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.llama.abort_flag import AbortFlag
from inference.llama.model import Model
from inference.llama.native_log import captured_native_log
from inference.llama.sequence import SCRATCH_ID, BatchPart, Sequence
from inference.llama.state_layout import StateBytes
from inference.remedies import remedies
from inference.request import EngineError, ErrorCode

# With flash attention V is stored like K, row by token, so state can be cut between tokens.
_FLASH_ATTENTION_ON = 1
_GGML_TYPE_F16 = 1
_BYTES = ctypes.POINTER(ctypes.c_uint8)
_DECODE_ABORTED = 2
_NO_FREE_CELLS = 1
# Of buffers for the computation.
_NO_MEMORY = -2


class NoFreeCells(EngineError):
    """The KV cache has no room for a batch."""


class DecodeAborted(Exception):
    """The abort flag was set; the sequences hold what they held before the call, or are empty."""


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What of a context's settings changes the meaning of KV bytes (see fingerprint) or their number.

    n_seq: sequences that can be held at once; they share n_ctx cells.
    """

    n_ctx: int
    n_ubatch: int = 512
    n_threads: int = 1
    type_k: int = _GGML_TYPE_F16
    type_v: int = _GGML_TYPE_F16
    swa_full: bool = False
    n_seq: int = 1


class Context:
    """Sequences in one KV cache. Not thread-safe: only the inference thread calls it."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        self._llama = llama = model.llama
        self.model = model
        self.params = params
        self.abort_flag = AbortFlag()
        self.num_decoded_tokens = 0
        native = llama.llama_context_default_params()
        native.n_ctx = params.n_ctx
        native.n_batch = native.n_ubatch = params.n_ubatch
        # One more than are used: rows pass through it on their way out of a sequence and in.
        native.n_seq_max = params.n_seq + 1
        # One stream for all sequences: seq_cp of some rows between streams aborts the process.
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
            uses_gpu = model.offload.layers_offloaded > 0
            raise EngineError(
                ErrorCode.MODEL_LOAD_FAILED, _why_no_context(log, params.n_ctx, uses_gpu=uses_gpu)
            )
        self.memory = llama.llama_get_memory(self._handle)
        self._batch = llama.llama_batch_init(params.n_ubatch, 0, 1)
        for index in range(params.n_ubatch):
            self._batch.n_seq_id[index] = 1
        # Each look at a field of the structure makes an object.
        self._tokens, self._positions = self._batch.token, self._batch.pos
        self._seq_ids, self._wants_logits = self._batch.seq_id, self._batch.logits
        self.kv_allocated_bytes = _allocated_bytes(log)
        self.flash_attention = bool(re.search(r"flash_attn\s*=\s*enabled", "\n".join(log)))
        window_cells = re.search(r"creating +SWA KV cache, size = (\d+) cells", "\n".join(log))
        self.num_window_cells = int(window_cells[1]) if window_cells else 0
        # The library rounds the context up; tokens past what was asked for are not used.
        self.n_ctx: int = min(params.n_ctx, llama.llama_n_ctx(self._handle))
        self.sequences = tuple(Sequence(self, number + 1) for number in range(params.n_seq))

    @property
    def handle(self) -> Any:
        """llama_context, for calls that another room makes on it (sampling)."""
        return self._handle

    @property
    def num_free_cells(self) -> int:
        """Cells that no sequence's token needs. Counted, not asked: the library tells only what fits in one batch."""
        return self.n_ctx - sum([len(sequence.token_ids) for sequence in self.sequences])

    def decode(self, parts: ListOf[BatchPart]) -> None:
        """Append tokens to sequences, at most n_ubatch in all, each sequence once.

        Raises DecodeAborted, or EngineError where the library failed; each sequence then holds what it held before,
        or nothing if its rows could not be taken back.
        """
        index = 0
        for part in parts:
            sequence = part.sequence
            if sequence.awaits_checkpoint:
                raise EngineError(
                    ErrorCode.INTERNAL, "blocks were restored without the checkpoint that completes them"
                )
            for position, token in enumerate(part.token_ids, len(sequence.token_ids)):
                self._tokens[index] = token
                self._positions[index] = position
                self._seq_ids[index][0] = sequence.seq_id
                self._wants_logits[index] = False
                index += 1
            self._wants_logits[index - 1] = part.want_logits
            sequence.logits_index = index - 1
        self._batch.n_tokens = index
        self.num_decoded_tokens += index
        result = self._llama.llama_decode(self._handle, self._batch)
        if result == 0:
            for part in parts:
                part.sequence.extend(part.token_ids)
            return
        for part in parts:
            part.sequence.take_back(len(part.token_ids))
        if result == _DECODE_ABORTED:
            raise DecodeAborted
        if result == _NO_FREE_CELLS:
            raise NoFreeCells(
                ErrorCode.DECODE_FAILED, "the KV cache is full: start a new chat or choose a larger context"
            )
        if result == _NO_MEMORY:
            tries = remedies(self.n_ctx, None, uses_gpu=self.model.offload.layers_offloaded > 0)
            raise EngineError(
                ErrorCode.DECODE_FAILED, f"there is not enough memory for this step: try {tries}"
            )
        raise EngineError(
            ErrorCode.DECODE_FAILED,
            f"the model could not compute this step (code {result}; the log has more): send the message again",
        )

    def clear(self) -> None:
        """Empty every sequence; the next row lies in the first cell."""
        self._llama.llama_memory_clear(self.memory, False)
        for sequence in self.sequences:
            sequence.forget()

    def state_size(self) -> int:
        """Bytes of all sequences' states, as the library counts them now."""
        return sum(sequence.state_size() for sequence in self.sequences)

    def read_empty_states(self) -> tuple[StateBytes, StateBytes]:
        """An empty sequence's state and its partial state: they show what sections there are."""
        return self.read_state_of(SCRATCH_ID, 0), self.read_state_of(SCRATCH_ID, 1)

    def state_size_of(self, seq_id: int, flags: int) -> int:
        return int(self._llama.llama_state_seq_get_size_ext(self._handle, seq_id, flags))

    def read_state_of(self, seq_id: int, flags: int) -> StateBytes:
        """Raises EngineError if the library writes another size than it announced."""
        size = self.state_size_of(seq_id, flags)
        state = np.empty(size, dtype=np.uint8)
        written = self._llama.llama_state_seq_get_data_ext(self._handle, _address(state), size, seq_id, flags)
        if written != size:
            raise EngineError(ErrorCode.INTERNAL, f"the library wrote {written} of {size} state bytes")
        return state

    def write_state_of(self, state: StateBytes, seq_id: int, flags: int) -> bool:
        """Whether the library took in all of a state; it empties the sequence first."""
        read = self._llama.llama_state_seq_set_data_ext(
            self._handle, _address(state), state.size, seq_id, flags
        )
        return bool(read == state.size)

    def logits(self, index: int) -> npt.NDArray[np.float32]:
        """Logits of the last batch's token at this index, shape (vocabulary size,); a copy."""
        pointer = self._llama.llama_get_logits_ith(self._handle, index)
        return np.ctypeslib.as_array(pointer, shape=(self.model.vocab.size,)).copy()

    def close(self) -> None:
        if self._handle is not None:
            self._llama.llama_batch_free(self._batch)
            self._llama.llama_free(self._handle)
            self._handle = None


def _address(state: StateBytes) -> Any:
    # Quicker than state.ctypes.data_as, which counts where blocks are small.
    return ctypes.cast(state.ctypes.data, _BYTES)


def _allocated_bytes(log: ListOf[str]) -> int:
    """Bytes of the KV (and recurrent-state) buffers that the library says it allocated, to 0.01 MiB."""
    sizes = re.findall(r"(?:KV|RS) buffer size = +([0-9.]+) MiB", "\n".join(log))
    return round(sum(float(size) for size in sizes) * 2**20)


def _why_no_context(log: ListOf[str], n_ctx: int, *, uses_gpu: bool) -> str:
    text = "\n".join(log)
    if "alloc" in text or "memory" in text:
        tries = remedies(n_ctx, None, uses_gpu=uses_gpu)
        return f"not enough memory for a context of {n_ctx:,} tokens: try {tries}"
    return f"the model was loaded, but a context of {n_ctx} tokens could not be made (the log has more)"
