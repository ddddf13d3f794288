"""One JSON line per finished reply, for scripts and end-to-end tests: the counters the window shows.

Off unless EVERWARM_EVENT_LOG names a file. Each line holds `conversation_id`, `message_id`, `finish_reason`, `seed`,
`num_generation_tokens`, `decode_tokens_per_second`, and the objects `counts` (num_prompt_tokens, reused_tokens,
restored_tokens, prefilled_tokens), `timings` (seconds) and `kv` (bytes). It holds no text of the chat.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from inference import RequestFinished

EVENT_LOG_VARIABLE = "EVERWARM_EVENT_LOG"


class ReplyLog:
    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def from_environment(cls) -> ReplyLog | None:
        path = os.environ.get(EVENT_LOG_VARIABLE)
        return cls(Path(path)) if path else None

    def append(self, conversation_id: object, message_id: object, finished: RequestFinished) -> None:
        """One write per line, so a reader never sees half of one. Raises OSError."""
        line = json.dumps(
            {
                "conversation_id": conversation_id,
                "message_id": message_id,
                "finish_reason": finished.finish_reason,
                "seed": finished.seed,
                "num_generation_tokens": finished.num_generation_tokens,
                "decode_tokens_per_second": finished.decode_tokens_per_second,
                "counts": asdict(finished.counts),
                "timings": asdict(finished.timings),
                "kv": asdict(finished.kv),
            }
        )
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
