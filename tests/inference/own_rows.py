"""What a chat's rows are when it runs alone, to be compared with those that it got beside others.

A batch of another shape gives slightly other rows, so they are close and not equal; another chat's rows, or rows at
other positions, are far away.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inference.events import Event, RequestFinished
from inference.llama.context import ContextParams
from inference.llama.sequence import Sequence
from inference.llama.sequence_state import StateKind, capture_block, state_kind
from inference.llama.state_layout import parse_state
from inference.loaded_model import LoadedModel
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import RequestId

# Of the rows' own spread. Rows of other tokens are about 1.4 away, those of another batch shape 0.03 at most.
MOST_DIFFERENCE = 0.1


class OwnRows:
    def __init__(self, path: Path, *, n_ubatch: int, n_ctx: int = 2048) -> None:
        params = ContextParams(n_ctx=n_ctx, n_ubatch=n_ubatch)
        self._loaded = LoadedModel(ModelConfig(str(path), n_threads=1), None, lambda _fraction: True, params)
        self.num_compared = 0

    def compare_at_end(self, event: Event, runs: Mapping[RequestId, ReplyRun]) -> None:
        """While a finished reply's sequence still holds its rows."""
        if not isinstance(event, RequestFinished):
            return
        run = runs[event.request_id]
        if run.sequence is None or not run.sequence.token_ids:
            return
        assert run.sequence.token_ids == run.token_ids[: run.sequence.num_tokens]
        self.compare(run.sequence)

    def compare(self, sequence: Sequence) -> None:
        alone = self._loaded.context.sequences[0]
        alone.clear()
        size = self._loaded.context.params.n_ubatch
        for start in range(0, sequence.num_tokens, size):
            alone.decode(sequence.token_ids[start : start + size], want_logits=True)
        found, expected = _numbers(sequence), _numbers(alone)
        spread = float(np.std(expected)) or 1.0
        assert np.max(np.abs(found - expected)) <= MOST_DIFFERENCE * spread
        self.num_compared += 1

    def close(self) -> None:
        self._loaded.close()


def _numbers(sequence: Sequence) -> npt.NDArray[np.float32]:
    """Of f16 attention rows, or of a recurrent state in f32."""
    if state_kind(sequence) == StateKind.CHECKPOINTS_ONLY:
        state = sequence.read_state()
        return np.concatenate(
            [
                state[t.offset : t.offset + t.row_size].copy().view(np.float32)
                for section in parse_state(state, _like(sequence)).sections
                for t in section.tensors  # type: ignore[union-attr]
                if t.row_size
            ]
        )
    block = capture_block(sequence, 0, sequence.num_tokens)
    section = parse_state(block).first_attention
    rows = [
        block[t.offset : t.offset + section.num_rows * t.row_size].copy().view(np.float16)
        for t in section.k + section.v
    ]
    return np.concatenate(rows).astype(np.float32)


def _like(sequence: Sequence):  # type: ignore[no-untyped-def]
    return parse_state(sequence.context.read_empty_states()[0])
