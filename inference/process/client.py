"""The engine as seen from an asyncio program: requests go out, events come back; a dead worker is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from inference.events import EngineEvent, RequestEvent
from inference.model_config import ModelConfig, ModelInfo
from inference.request import GenerationRequest, RequestId


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """kv_store None: no prefix store. log_file receives the worker's log and the native library's."""

    kv_store: Path | None
    log_file: Path | None
    store_budget_bytes: int | None = None


class EngineClient:
    """Owns the worker process. Every method is called from the event loop's thread; none blocks it.

    on_event receives what concerns no single request (loads, statistics, the worker's death).
    """

    def __init__(self, config: WorkerConfig, on_event: Callable[[EngineEvent], None] | None = None) -> None:
        raise NotImplementedError

    @property
    def worker_pid(self) -> int | None:
        raise NotImplementedError

    @property
    def model_info(self) -> ModelInfo | None:
        raise NotImplementedError

    async def load_model(self, config: ModelConfig) -> ModelInfo:
        """Load ahead of the first request. Raises EngineError."""
        raise NotImplementedError

    def generate(self, request: GenerationRequest) -> AsyncIterator[RequestEvent]:
        """Events of one request; the last is RequestFinished or RequestFailed. Closing the iterator aborts it."""
        raise NotImplementedError

    def abort(self, request_id: RequestId) -> None:
        """Stop within one batch. The request then ends with RequestFinished(finish_reason=cancelled)."""
        raise NotImplementedError

    async def close(self, timeout_s: float = 0.4) -> None:
        """Abort everything, let the worker store what is whole, and end it; kill it when timeout_s is over."""
        raise NotImplementedError
