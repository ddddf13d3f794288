"""What makes KV bytes mean the same. Not in it: context length, device, threads, batch sizes, chat template."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal, NewType

Fingerprint = NewType("Fingerprint", bytes)
FINGERPRINT_BYTES = 32

# Raise when what is stored for the same tokens changes its form.
LAYOUT_VERSION = 1


@dataclass(frozen=True, slots=True)
class FingerprintFields:
    """rope_factors: which of a model's two sets of RoPE factors the context chose ("none": it has one at most)."""

    model_sha256: str
    library_build: str
    type_k: int
    type_v: int
    flash_attention: bool
    n_swa: int
    swa_full: bool
    rope_factors: Literal["none", "short", "long"]
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    lora: tuple[str, ...] = ()
    layout_version: int = LAYOUT_VERSION


@functools.lru_cache(maxsize=64)
def fingerprint(fields: FingerprintFields) -> Fingerprint:
    """SHA-256 of the fields in canonical JSON; remembered, since it is asked for before every prompt."""
    canonical = json.dumps(asdict(fields), sort_keys=True, separators=(",", ":"))
    return Fingerprint(hashlib.sha256(canonical.encode()).digest())
