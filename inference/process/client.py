"""The engine as seen from an asyncio program: requests go out, events come back; a dead worker is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import cast, get_args

from inference.events import (
    EngineEvent,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    PrefixExplained,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    WorkerExited,
)
from inference.model_config import ModelConfig, ModelInfo
from inference.process.wire import Abort, Command, Explain, Forget, Load, Prefetch, SetPins, Stop, Submit
from inference.process.worker_config import WorkerConfig
from inference.process.worker_process import WorkerProcess
from inference.request import EngineError, ErrorCode, GenerationRequest, ReadAhead, RequestId

_logger = logging.getLogger(__name__)
_OF_ONE_REQUEST = get_args(RequestEvent)
_LAST_OF_A_REQUEST = (RequestFinished, RequestFailed, PrefixExplained)
# Of the time close() may take, what the worker spends on writing; the rest is for stopping and exiting.
_STORE_SHARE = 0.6


class EngineClient:
    """Owns the worker process. Every method is called from the event loop's thread; none blocks it.

    on_event receives what concerns no single request (loads, statistics, the worker's death).
    The worker is started by the first request or load, and anew by the next one after it died.
    """

    def __init__(self, config: WorkerConfig, on_event: Callable[[EngineEvent], None] | None = None) -> None:
        self._config = config
        self._on_engine_event = on_event or (lambda event: None)
        self._worker: WorkerProcess | None = None
        self._model_info: ModelInfo | None = None
        self._streams: dict[RequestId, asyncio.Queue[RequestEvent]] = {}
        self._loads: dict[ModelConfig, asyncio.Future[ModelInfo]] = {}
        self._pins: SetPins | None = None
        self._exited: asyncio.Future[None] | None = None
        self._is_closing = False

    @property
    def worker_pid(self) -> int | None:
        return None if self._worker is None else self._worker.pid

    @property
    def model_info(self) -> ModelInfo | None:
        """The loaded model, as the worker last told."""
        return self._model_info

    async def load_model(self, config: ModelConfig) -> ModelInfo:
        """Load ahead of the first request. Raises EngineError."""
        if config not in self._loads:
            self._loads[config] = asyncio.get_running_loop().create_future()
            try:
                self._send(Load(config))
            except OSError as error:
                del self._loads[config]
                raise _cannot_start(error) from error
        # Shielded: several callers may wait for one load, and one that gives up must not end it for the others.
        return await asyncio.shield(self._loads[config])

    def generate(self, request: GenerationRequest) -> AsyncGenerator[RequestEvent, None]:
        """Events of one request; the last is RequestFinished or RequestFailed. Closing the iterator aborts it."""
        return self._stream(request, Submit(request))

    async def explain(self, request: GenerationRequest) -> PrefixExplained:
        """What the store has of the request's prompt, without reading or decoding any of it. Raises EngineError."""
        async for event in self._stream(request, Explain(request)):
            if isinstance(event, PrefixExplained):
                return event
            if isinstance(event, RequestFailed):
                raise EngineError(event.code, event.message)
        raise EngineError(ErrorCode.INTERNAL, "the engine gave no answer: try again")

    async def _stream(
        self, request: GenerationRequest, command: Command
    ) -> AsyncGenerator[RequestEvent, None]:
        stream: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._streams[request.request_id] = stream
        try:
            try:
                self._send(command)
            except OSError as error:
                refusal = _cannot_start(error)
                yield RequestFailed(request.request_id, refusal.code, str(refusal))
                return
            while True:
                event = await stream.get()
                is_last = isinstance(event, _LAST_OF_A_REQUEST)
                if is_last:
                    self._streams.pop(request.request_id, None)
                yield event
                if is_last:
                    return
        finally:
            if self._streams.pop(request.request_id, None) is not None:
                self.abort(request.request_id)

    def abort(self, request_id: RequestId) -> None:
        """Stop within one batch. The request then ends with RequestFinished(finish_reason=cancelled)."""
        if self._worker is not None:
            self._worker.send(Abort(request_id))

    def prefetch(self, request: GenerationRequest, how_much: ReadAhead = ReadAhead.STORED) -> None:
        """A chat was opened, or its next message (the request's last) is being typed: read ahead while nobody waits for
        a reply. The next call takes the place of this one. Starts no worker for it."""
        if self._worker is not None:
            self._worker.send(Prefetch(request, how_much))

    def forget(self, owner: str) -> None:
        """Remove what is stored for the owner and for nobody else. Raises OSError if no worker can be started."""
        self._send(Forget(owner))

    def set_pins(self, owners: Iterable[str]) -> None:
        """Never evict what is stored for these owners, and do evict what is for others. Starts no worker: every worker
        to come is told before anything else."""
        self._pins = SetPins(tuple(owners))
        if self._worker is not None:
            self._worker.send(self._pins)

    async def close(self, timeout_s: float = 0.4) -> None:
        """Abort everything, let the worker store what is whole, and end it; kill it when timeout_s is over."""
        self._is_closing = True
        worker, exited = self._worker, self._exited
        if worker is None or exited is None:
            return
        worker.send(Stop(timeout_s * _STORE_SHARE))
        worker.end_of_commands()
        try:
            await asyncio.wait_for(asyncio.shield(exited), timeout_s)
        except TimeoutError:
            worker.kill()
            await exited

    # --- the worker --------------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        """Raises OSError if a new worker is needed and cannot be started."""
        if self._worker is None:
            self._start_worker()
        assert self._worker is not None
        self._worker.send(command)

    def _start_worker(self) -> None:
        loop = asyncio.get_running_loop()
        arrived: deque[Event] = deque()

        def on_event(event: Event) -> None:
            # One wake-up of the loop for all that has arrived by then.
            arrived.append(event)
            if len(arrived) == 1:
                _call_soon(loop, lambda: self._take_events(arrived))

        def on_exit(cause: str | None) -> None:
            _call_soon(loop, lambda: self._take_exit(worker, arrived, cause))

        worker = WorkerProcess(self._config, on_event, on_exit)
        self._worker, self._exited = worker, loop.create_future()
        if self._pins is not None:
            worker.send(self._pins)

    def _take_events(self, arrived: deque[Event]) -> None:
        while arrived:
            event = arrived[0]
            try:
                self._take_event(event)
            except Exception:
                _logger.exception("an event was not taken")
            # Removed last: an empty deque is what makes the reader wake the loop again.
            arrived.popleft()

    def _take_event(self, event: Event) -> None:
        if isinstance(event, _OF_ONE_REQUEST):
            stream = self._streams.get(event.request_id)
            if stream is not None:
                stream.put_nowait(cast(RequestEvent, event))
            return
        if isinstance(event, ModelLoaded):
            self._model_info = event.info
            self._end_load(event.info.config, event.info)
        elif isinstance(event, ModelLoadFailed):
            self._model_info = None
            self._end_load(event.config, EngineError(event.code, event.message))
        self._on_engine_event(cast(EngineEvent, event))

    def _end_load(self, config: ModelConfig, result: ModelInfo | EngineError) -> None:
        future = self._loads.pop(config, None)
        if future is None or future.done():
            return
        if isinstance(result, ModelInfo):
            future.set_result(result)
        else:
            future.set_exception(result)
            # Nobody may be waiting any more; that is no fault to report.
            future.exception()

    def _take_exit(self, worker: WorkerProcess, arrived: deque[Event], cause: str | None) -> None:
        self._take_events(arrived)
        if self._exited is not None and not self._exited.done():
            self._exited.set_result(None)
        if worker is not self._worker:
            return
        self._worker, self._model_info = None, None
        what = f"the engine stopped ({cause or 'it was closed'})"
        for request_id, stream in list(self._streams.items()):
            stream.put_nowait(
                RequestFailed(
                    request_id,
                    ErrorCode.ENGINE_DIED,
                    f"{what}. What was written so far is kept; the next message starts it again",
                )
            )
        for config in list(self._loads):
            self._end_load(config, EngineError(ErrorCode.ENGINE_DIED, f"{what} while it loaded the model"))
        if not self._is_closing:
            self._on_engine_event(WorkerExited(cause or "exit code 0"))


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # A loop that is closed has nobody left to tell.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


def _cannot_start(error: OSError) -> EngineError:
    return EngineError(
        ErrorCode.ENGINE_DIED, f"the engine could not be started ({error.strerror or error}): try again"
    )
