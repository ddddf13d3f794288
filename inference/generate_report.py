"""The JSON object of `generate --json`: names and units that scripts rely on."""

from __future__ import annotations

from dataclasses import dataclass

from inference.request import FinishReason
from inference.token_logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class KVReport:
    """Bytes. read and written: since this process's worker started."""

    used_bytes: int
    allocated_bytes: int
    store_bytes: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """Read back from the load."""

    name: str
    backend: str
    layers_offloaded: int
    layers: int


@dataclass(frozen=True, slots=True)
class GenerateReport:
    """Counters are those of the worker, milliseconds by its clock; null: it did not come to that.

    logprobs: one a token where they were asked for, else none. reasoning: what the model wrote before the answer, which
    is `text`; token_ids are those of both.
    """

    text: str
    reasoning: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int
    restored_tokens: int
    prefilled_tokens: int
    ttft_ms: float | None
    load_ms: float | None
    restore_ms: float | None
    prefill_ms: float | None
    decode_tokens_per_second: float | None
    finish_reason: FinishReason
    kv: KVReport
    device: DeviceReport | None
    seed: int | None
    logprobs: tuple[TokenLogprobs, ...]
