"""One request with a worker of its own, from start to exit, reported with the worker's counters."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from inference.events import (
    EngineEvent,
    EngineStats,
    ModelLoaded,
    PrefillProgress,
    RequestFailed,
    RequestFinished,
    StoreNotice,
    TokenDelta,
)
from inference.generate_report import DeviceReport, GenerateReport, KVReport
from inference.messages import TokenId
from inference.metrics import KVUsage, PromptCounts
from inference.model_config import ModelInfo
from inference.process.client import EngineClient
from inference.process.worker_config import WorkerConfig
from inference.request import EngineError, FinishReason, GenerationRequest
from inference.template_info import TemplateInfo
from inference.token_logprobs import TokenLogprobs

# A script's next call counts on the state being on disk, so this exit waits for a slow one.
_STORE_TIMEOUT_S = 120.0
_NOTHING = KVUsage(0, 0, 0, 0, 0, 0, 0, 0)


class SingleGeneration:
    """Collects the events of one request; `failure` is set when it did not end by itself."""

    def __init__(self, show_text: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._show_text = show_text
        self._warn = warn
        self._info: ModelInfo | None = None
        self._is_interrupted = False
        self._text = self._reasoning = ""
        self._is_stopping = self._leaves_template_open = False
        self._token_ids: list[TokenId] = []
        self._logprobs: list[TokenLogprobs] = []
        self._counts = PromptCounts(0, 0, 0, 0)
        self._finished: RequestFinished | None = None
        self._kv = _NOTHING
        self.failure: EngineError | None = None

    async def run(self, config: WorkerConfig, request: GenerationRequest) -> GenerateReport:
        """Raises EngineError if the request was refused before anything was read."""
        self._leaves_template_open = request.messages is not None and request.chat_template is None
        client = EngineClient(config, self._on_engine_event)
        with contextlib.suppress(NotImplementedError, ValueError):  # Windows; not the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._interrupt, client, request)
        try:
            async for event in client.generate(request):
                self._on_event(event)
        finally:
            await client.close(_STORE_TIMEOUT_S)
        if self.failure is not None and not self._counts.num_prompt_tokens:
            raise self.failure
        return self._report()

    def _interrupt(self, client: EngineClient, request: GenerationRequest) -> None:
        if self._info is None or self._is_stopping:
            # Asked twice: it does not answer. And a load cannot be told to stop early, and there is nothing to store yet.
            self._is_interrupted = True
            self._closing = asyncio.ensure_future(client.close(0.0))
        else:
            self._is_stopping = True
            client.abort(request.request_id)

    def _on_engine_event(self, event: EngineEvent) -> None:
        if isinstance(event, EngineStats):
            self._kv = event.kv
        elif isinstance(event, ModelLoaded):
            self._info = event.info
            self._tell_stand_in(event.info.template)
        elif isinstance(event, StoreNotice):
            self._warn(event.message)

    def _tell_stand_in(self, template: TemplateInfo) -> None:
        if self._leaves_template_open and template.source is not None and template.reason is not None:
            self._warn(
                f"{template.reason}: the chat is written with “{template.source}” (--template chooses another)"
            )

    def _on_event(self, event: object) -> None:
        if isinstance(event, TokenDelta):
            self._text += event.text
            self._reasoning += event.reasoning
            self._token_ids += event.token_ids
            self._logprobs += event.logprobs
            self._show_text(event.text)
        elif isinstance(event, PrefillProgress):
            self._counts = event.counts
        elif isinstance(event, RequestFinished):
            self._finished, self._counts = event, event.counts
        elif isinstance(event, RequestFailed) and not self._is_interrupted:
            self.failure = EngineError(event.code, event.message)

    def _report(self) -> GenerateReport:
        finished, info = self._finished, self._info
        timings = finished.timings if finished is not None else None
        return GenerateReport(
            text=self._text,
            reasoning=self._reasoning,
            token_ids=tuple(self._token_ids),
            prompt_tokens=self._counts.num_prompt_tokens,
            reused_tokens=self._counts.reused_tokens,
            restored_tokens=self._counts.restored_tokens,
            prefilled_tokens=self._counts.prefilled_tokens,
            ttft_ms=None if timings is None else _milliseconds(timings.ttft_s),
            load_ms=None if info is None else info.load_s * 1e3,
            restore_ms=None if timings is None else _milliseconds(timings.restore_s),
            prefill_ms=None if timings is None else _milliseconds(timings.prefill_s),
            decode_tokens_per_second=None if finished is None else finished.decode_tokens_per_second,
            finish_reason=self._finish_reason(),
            kv=KVReport(
                used_bytes=self._kv.used_bytes,
                allocated_bytes=self._kv.allocated_bytes,
                store_bytes=self._kv.store_bytes,
                bytes_read=self._kv.bytes_read,
                bytes_written=self._kv.bytes_written,
            ),
            device=None
            if info is None
            else DeviceReport(info.device_name, info.backend, info.layers_offloaded, info.n_layers),
            seed=None if finished is None else finished.seed,
            logprobs=tuple(self._logprobs),
        )

    def _finish_reason(self) -> FinishReason:
        if self._finished is not None:
            return self._finished.finish_reason
        return FinishReason.CANCELLED if self._is_interrupted else FinishReason.ERROR


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
