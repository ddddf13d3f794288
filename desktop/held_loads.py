"""Loads that ended the engine are not tried again by themselves: what needs such a model waits until someone decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from desktop.wording import as_sentence
from inference import (
    EngineClient,
    EngineEvent,
    EngineStats,
    GenerationRequest,
    KVUsage,
    ModelConfig,
    RequestEvent,
    RequestFinished,
    RequestId,
    WorkerExited,
)

_NO_USAGE = KVUsage(0, 0, 0, 0, 0, 0, 0, 0)


class HeldLoads(QObject):
    """Stands between turns and engine: asks it at once, unless the request's model is held."""

    changed = Signal()
    wanted = Signal(object)
    """ModelConfig: it is held, and somebody now waits for it."""

    def __init__(self, engine: EngineClient, unended: Iterable[ModelConfig]) -> None:
        """unended: loads that were begun before this start and never ended."""
        super().__init__()
        self._engine = engine
        self._reasons = {config: _stopped_before(config) for config in unended}
        self._instead: dict[ModelConfig, ModelConfig] = {}
        self._decisions: dict[ModelConfig, asyncio.Future[ModelConfig]] = {}
        self._waiting: dict[RequestId, asyncio.Future[ModelConfig]] = {}
        self._kv = _NO_USAGE

    def holds(self, config: ModelConfig) -> bool:
        return config in self._reasons

    def reason(self, config: ModelConfig) -> str:
        """One sentence; empty if it is not held."""
        return self._reasons.get(config, "")

    def take(self, event: EngineEvent) -> None:
        if isinstance(event, EngineStats):
            self._kv = event.kv
        elif isinstance(event, WorkerExited) and event.loading is not None:
            self._reasons[event.loading] = as_sentence(event.message)
            self.changed.emit()
            self.wanted.emit(event.loading)

    def release(self, config: ModelConfig, instead: ModelConfig | None = None) -> None:
        """Try it again; whoever waits for it goes on, with other settings if they are given."""
        # Turns that are queued behind others still ask for what was held.
        self._instead.pop(config, None)
        if instead is not None and instead != config:
            self._instead[config] = instead
        if self._reasons.pop(config, None) is None:
            return
        decision = self._decisions.pop(config, None)
        if decision is not None:
            decision.set_result(instead or config)
        self.changed.emit()

    # --- as EngineClient's -------------------------------------------------------------------------

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[RequestEvent, None]:
        model: ModelConfig | None
        if self.holds(request.model):
            model = await self._decision(request)
            if model is None:
                yield RequestFinished.unread(request.request_id, 0.0, self._kv)
                return
        else:
            model = self._instead.get(request.model, request.model)
        request = replace(request, model=model)
        async for event in self._engine.generate(request):
            yield event

    def abort(self, request_id: RequestId) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is None:
            self._engine.abort(request_id)
        else:
            waiting.cancel()

    async def _decision(self, request: GenerationRequest) -> ModelConfig | None:
        """None: the request was stopped."""
        loop = asyncio.get_running_loop()
        decision = self._decisions.setdefault(request.model, loop.create_future())
        stopped: asyncio.Future[ModelConfig] = loop.create_future()
        self._waiting[request.request_id] = stopped
        self.wanted.emit(request.model)
        try:
            await asyncio.wait((decision, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[request.request_id]
        return None if stopped.cancelled() else decision.result()


def _stopped_before(config: ModelConfig) -> str:
    return f"The last time {Path(config.path).name} was loaded, the engine or the computer stopped before that was done."
