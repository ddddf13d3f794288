"""Counters and clock readings of one request. All readings come from the worker's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Seconds. ttft_s counts from arrival in the worker to the first sampled token, without queued_s and load_s."""

    queued_s: float
    load_s: float
    tokenize_s: float
    restore_s: float
    prefill_s: float
    ttft_s: float | None
    decode_s: float
    e2e_s: float


@dataclass(frozen=True, slots=True)
class PromptCounts:
    """Where each prompt token's KV rows came from; the three add up to num_prompt_tokens.

    reused: rows already in memory. restored: rows read from disk. prefilled: tokens handed to decode
    before the first sample, counted where they are handed over.
    """

    num_prompt_tokens: int
    reused_tokens: int
    restored_tokens: int
    prefilled_tokens: int


@dataclass(frozen=True, slots=True)
class KVUsage:
    """Bytes. used/allocated: the KV cache in memory; store: files on disk; read/written: since the worker started;
    written_today (by this computer's calendar) and written_total: by all processes since the store was made."""

    used_bytes: int
    allocated_bytes: int
    store_bytes: int
    store_budget_bytes: int
    bytes_read: int
    bytes_written: int
    bytes_written_today: int
    bytes_written_total: int
