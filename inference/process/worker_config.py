"""What a worker process is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """kv_store: folder of the prefix store, None for no store. log_file: receives the worker's log and whatever
    the native library prints; None: thrown away. store_budget_bytes None: a tenth of the free disk, at most 20 GB.
    load_marks: file that remembers a load which ended the process (see LoadMarks), None: nobody does.
    """

    kv_store: Path | None = None
    log_file: Path | None = None
    store_budget_bytes: int | None = None
    load_marks: Path | None = None

    def to_json(self) -> str:
        return msgspec.json.encode(self, enc_hook=str).decode()

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        return msgspec.json.decode(text, type=cls, dec_hook=_decode_path)


def _decode_path(field_type: type, value: Any) -> Path:
    assert field_type is Path
    return Path(value)
