"""An engine that says what a test tells it to, event by event; no process, no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

from inference import (
    NEUTRAL,
    ContextFit,
    EngineError,
    EngineEvent,
    ErrorCode,
    FinishReason,
    GenerationRequest,
    KVUsage,
    ModelConfig,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    Phase,
    PhaseChanged,
    PrefillProgress,
    PromptCounts,
    ReadAhead,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    RequestId,
    RequestTimings,
    SamplingParams,
    TemplateInfo,
    TokenDelta,
    TokenId,
)

ANY_REQUEST = RequestId("")
KV = KVUsage(
    used_bytes=12_000_000,
    allocated_bytes=184_000_000,
    store_bytes=93_000_000,
    store_budget_bytes=20_000_000_000,
    bytes_read=0,
    bytes_written=0,
    bytes_written_today=0,
    bytes_written_total=0,
)
COUNTS = PromptCounts(num_prompt_tokens=4043, reused_tokens=4012, restored_tokens=0, prefilled_tokens=31)
TIMINGS = RequestTimings(
    queued_s=0.0,
    load_s=0.0,
    tokenize_s=0.0,
    restore_s=0.0,
    prefill_s=0.02,
    ttft_s=0.03,
    decode_s=1.0,
    e2e_s=1.03,
)


class Pause:
    """A script waits here until the test calls go(); reached tells that it got there."""

    def __init__(self) -> None:
        self.reached = False
        self._go = asyncio.Event()

    def go(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached = True
        await self._go.wait()


Script = Iterable[RequestEvent | Pause]


def phase(name: Phase) -> PhaseChanged:
    return PhaseChanged(ANY_REQUEST, name)


def prefill(done: int, total: int) -> PrefillProgress:
    return PrefillProgress(ANY_REQUEST, done, total, COUNTS, 0.1)


def delta(
    text: str, num_generation_tokens: int = 1, decode_s: float = 0.0, ttft_s: float = 0.03
) -> TokenDelta:
    return TokenDelta(
        ANY_REQUEST, text, (TokenId(num_generation_tokens),), num_generation_tokens, decode_s, ttft_s
    )


def finished(
    text: str, reason: FinishReason = FinishReason.STOP, rate: float | None = 41.2, **changes: Any
) -> RequestFinished:
    event = RequestFinished(
        ANY_REQUEST,
        reason,
        text,
        (TokenId(1), TokenId(2)),
        COUNTS,
        2,
        TIMINGS,
        rate,
        seed=7,
        kv=KV,
        bytes_read=0,
        miss=None,
    )
    return replace(event, **changes)


def failed(code: ErrorCode, message: str, fit: ContextFit | None = None) -> RequestFailed:
    return RequestFailed(ANY_REQUEST, code, message, fit)


def fit(num_tokens: int, num_sent: int | None = None, **changes: Any) -> ContextFit:
    whole = ContextFit(num_tokens, num_tokens if num_sent is None else num_sent, 8192, 8192, 20_000)
    return replace(whole, **changes)


def reply(text: str) -> list[RequestEvent]:
    """A whole reply without any pause."""
    return [phase(Phase.PREFILL), phase(Phase.DECODE), delta(text), finished(text)]


def model_info(config: ModelConfig, **changes: Any) -> ModelInfo:
    info = ModelInfo(
        config=config,
        name="Scripted",
        architecture="llama",
        quantisation="Q4_1",
        size_bytes=98_000_000,
        num_params=135_000_000,
        n_ctx=8192,
        n_ctx_train=8192,
        n_layers=31,
        layers_offloaded=0,
        device_name="CPU",
        backend="CPU",
        n_threads=2,
        kv_allocated_bytes=184_000_000,
        reuse="any prefix",
        template=TemplateInfo("model", None, ("model", "built-in chatml")),
        sampling_defaults=NEUTRAL,
        recommended_sampling=(),
        load_s=0.1,
    )
    return replace(info, **changes)


class ScriptedEngine:
    """Has EngineClient's public methods. calls: names of what was called, in order."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.loaded: list[ModelConfig] = []
        self.calls: list[str] = []
        self.load_gate: Pause | None = None
        self.load_errors: dict[str, EngineError] = {}
        """By path."""
        self.at_load_error: EngineEvent | None = None
        """Told instead of ModelLoadFailed."""
        self.model_info: ModelInfo | None = None
        self.model_changes: dict[str, Any] = {}
        """What the next model to load differs in from model_info()'s."""
        self.prefetched: list[GenerationRequest] = []
        self.drafts: list[tuple[GenerationRequest, ReadAhead]] = []
        self.forgotten: list[str] = []
        self.counted: list[GenerationRequest] = []
        self.fit: Callable[[GenerationRequest], ContextFit] = lambda request: fit(
            10 * len(request.messages or ())
        )
        self.grammar_problems: dict[str, str] = {}
        """By text."""
        self.pins: tuple[str, ...] | None = None
        self.worker_pid: int | None = 1
        self.cannot_start = False
        self._on_event: Callable[[EngineEvent], None] = lambda event: None
        self.asides: list[GenerationRequest] = []
        """What was asked beside chats, as for titles."""
        self._scripts: list[Script] = []
        self._aside_scripts: list[Script] = []
        self._aborted: dict[RequestId, asyncio.Event] = {}

    def connect(self, on_event: Callable[[EngineEvent], None]) -> None:
        self._on_event = on_event

    def enqueue(self, script: Script) -> None:
        """For the next request that has none yet. Events get the request's own id."""
        self._scripts.append(script)

    def enqueue_aside(self, script: Script) -> None:
        """For the next request that is asked beside a chat; without one it fails."""
        self._aside_scripts.append(script)

    def tell(self, event: EngineEvent) -> None:
        self._on_event(event)

    async def load_model(self, config: ModelConfig) -> ModelInfo:
        self.calls.append("load_model")
        self.tell(ModelLoadProgress(config, 0.4))
        if self.load_gate is not None:
            await self.load_gate.wait()
        self.model_info = None
        if (error := self.load_errors.get(config.path)) is not None:
            self.tell(self.at_load_error or ModelLoadFailed(config, error.code, str(error)))
            raise error
        self.loaded.append(config)
        self.model_info = model_info(config, **self.model_changes)
        self.tell(ModelLoaded(self.model_info))
        return self.model_info

    async def generate(self, request: GenerationRequest) -> AsyncIterator[RequestEvent]:
        self.calls.append("aside" if request.is_aside else "generate")
        (self.asides if request.is_aside else self.requests).append(request)
        if request.is_aside:
            scripts = self._aside_scripts or [[failed(ErrorCode.PROMPT_TOO_LONG, "no room")]]
        else:
            scripts = self._scripts
        aborted = self._aborted.setdefault(request.request_id, asyncio.Event())
        text = ""
        for step in scripts.pop(0):
            if isinstance(step, Pause):
                try:
                    await _first_of(step.wait(), aborted.wait())
                except asyncio.CancelledError:
                    # As the client does when its iterator is closed.
                    self.abort(request.request_id)
                    raise
            if aborted.is_set():
                yield replace(finished(text, FinishReason.CANCELLED), request_id=request.request_id)
                return
            if isinstance(step, Pause):
                continue
            if isinstance(step, TokenDelta):
                text += step.text
            yield replace(step, request_id=request.request_id)

    def abort(self, request_id: RequestId) -> None:
        self.calls.append("abort")
        self._aborted.setdefault(request_id, asyncio.Event()).set()

    def prefetch(self, request: GenerationRequest, how_much: ReadAhead = ReadAhead.STORED) -> None:
        self.calls.append("prefetch")
        if how_much is ReadAhead.STORED:
            self.prefetched.append(request)
        else:
            self.drafts.append((request, how_much))

    async def count(self, request: GenerationRequest) -> ContextFit:
        self.counted.append(request)
        return self.fit(request)

    def forget(self, owner: str) -> None:
        self.calls.append("forget")
        if self.cannot_start:
            raise OSError("no worker")
        self.forgotten.append(owner)

    def set_pins(self, owners: Iterable[str]) -> None:
        self.calls.append("set_pins")
        self.pins = tuple(owners)

    async def check_grammar(self, sampling: SamplingParams) -> str | None:
        self.calls.append("check_grammar")
        return self.grammar_problems.get(sampling.grammar or sampling.json_schema or "")

    def end_worker(self) -> None:
        self.calls.append("end_worker")

    async def close(self, timeout_s: float = 0.4) -> None:
        self.calls.append("close")
        for aborted in self._aborted.values():
            aborted.set()


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
