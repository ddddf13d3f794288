"""The engine as seen from an asyncio program: requests go out, events come back; a dead worker is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeVar, cast, get_args

from inference.events import (
    EngineEvent,
    Event,
    GrammarChecked,
    Heartbeat,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    PrefixExplained,
    PromptCounted,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    StopUnanswered,
    WorkerExited,
)
from inference.load_marks import LoadMarks
from inference.model_config import ModelConfig, ModelInfo
from inference.process.watchdog import TICK_S, Patience, Watchdog
from inference.process.wire import (
    Abort,
    CheckGrammar,
    Command,
    Count,
    Explain,
    Forget,
    Load,
    Prefetch,
    SetPins,
    Stop,
    Submit,
)
from inference.process.worker_config import WorkerConfig
from inference.process.worker_death import ENDED, HANG, WorkerDeath
from inference.process.worker_process import WorkerProcess
from inference.request import (
    ContextFit,
    EngineError,
    ErrorCode,
    GenerationRequest,
    ReadAhead,
    RequestId,
    new_request_id,
)
from inference.sampling_params import SamplingParams

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", PrefixExplained, PromptCounted, GrammarChecked)
_OF_ONE_REQUEST = get_args(RequestEvent)
_LAST_OF_A_REQUEST = (RequestFinished, RequestFailed, PromptCounted, PrefixExplained, GrammarChecked)
# Of the time close() may take, what the worker spends on writing; the rest is for stopping and exiting.
_STORE_SHARE = 0.6
# From a kill to the process's end.
_KILL_S = 3.0


class EngineClient:
    """Owns the worker process. Every method is called from the event loop's thread; none blocks it.

    on_event receives what concerns no single request (loads, statistics, the worker's death).
    The worker is started by the first request or load, and anew by the next one after it died. It is watched while it
    owes an answer, and killed when it does not get on.
    """

    def __init__(
        self,
        config: WorkerConfig,
        on_event: Callable[[EngineEvent], None] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._config = config
        self._patience = patience or Patience()
        self._watchdog = Watchdog(self._patience)
        self._watching: asyncio.Task[None] | None = None
        self._loading: ModelConfig | None = None
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
                self._ask(Load(config))
            except OSError as error:
                del self._loads[config]
                raise _cannot_start(error) from error
        # Shielded: several callers may wait for one load, and one that gives up must not end it for the others.
        return await asyncio.shield(self._loads[config])

    def generate(self, request: GenerationRequest) -> AsyncGenerator[RequestEvent, None]:
        """Events of one request; the last is RequestFinished or RequestFailed. Closing the iterator aborts it."""
        return self._stream(request.request_id, Submit(request))

    async def explain(self, request: GenerationRequest) -> PrefixExplained:
        """What the store has of the request's prompt, without reading or decoding any of it. Raises EngineError."""
        return await self._answer(request.request_id, Explain(request), PrefixExplained)

    async def count(self, request: GenerationRequest) -> ContextFit:
        """How the request would fit into the context, answered beside replies that run. Raises EngineError, also where
        its model is not the loaded one."""
        return (await self._answer(request.request_id, Count(request), PromptCounted)).fit

    async def check_grammar(self, sampling: SamplingParams) -> str | None:
        """Why no reply can follow its grammar or JSON schema, one line; None: nothing was found. Raises EngineError."""
        request_id = new_request_id()
        return (await self._answer(request_id, CheckGrammar(request_id, sampling), GrammarChecked)).problem

    async def _answer(self, request_id: RequestId, command: Command, answer: type[_Answer]) -> _Answer:
        """Of a question that has one event for an answer. Raises EngineError."""
        async with contextlib.aclosing(self._stream(request_id, command)) as events:
            async for event in events:
                if isinstance(event, answer):
                    return event
                if isinstance(event, RequestFailed):
                    raise EngineError(event.code, event.message)
        raise EngineError(ErrorCode.INTERNAL, "the engine gave no answer: try again")

    async def _stream(self, request_id: RequestId, command: Command) -> AsyncGenerator[RequestEvent, None]:
        stream: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._streams[request_id] = stream
        try:
            try:
                self._ask(command)
            except OSError as error:
                refusal = _cannot_start(error)
                yield RequestFailed(request_id, refusal.code, str(refusal))
                return
            while True:
                event = await stream.get()
                is_last = isinstance(event, _LAST_OF_A_REQUEST)
                if is_last:
                    self._forget_stream(request_id)
                yield event
                if is_last:
                    return
        finally:
            if self._forget_stream(request_id):
                self._abort(request_id)

    def _forget_stream(self, request_id: RequestId) -> bool:
        self._watchdog.ended(request_id)
        return self._streams.pop(request_id, None) is not None

    def abort(self, request_id: RequestId) -> None:
        """Stop within one batch. The request then ends with RequestFinished(finish_reason=cancelled); if it does not
        within a few seconds, on_event is told StopUnanswered."""
        if request_id in self._streams:
            self._watchdog.stop_asked(request_id)
        self._abort(request_id)

    def _abort(self, request_id: RequestId) -> None:
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

    def end_worker(self) -> None:
        """For a worker that does not answer: end it now. Whoever waits for it is told; the next request starts another."""
        self._kill(WorkerDeath(ENDED))

    def _kill(self, death: WorkerDeath) -> None:
        worker = self._worker
        if worker is None:
            return
        worker.kill(death)
        # A process that waits inside a driver cannot be killed by anyone; nobody has to wait for it, too.
        asyncio.get_running_loop().call_later(_KILL_S, self._take_exit, worker, deque(), death)

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
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(exited), _KILL_S)
            if self._loading is not None and self._config.load_marks is not None:
                # It was not the load that ended the worker.
                LoadMarks(self._config.load_marks).forget(self._loading)

    # --- the worker --------------------------------------------------------------------------------

    def _send(self, command: Command) -> None:
        """Raises OSError if a new worker is needed and cannot be started."""
        if self._worker is None:
            self._start_worker()
        assert self._worker is not None
        self._worker.send(command)

    def _ask(self, command: Command) -> None:
        """Send what has to be answered, and watch that it is. Raises OSError as _send does."""
        self._send(command)
        assert self._worker is not None
        if self._watching is None or self._watching.done():
            self._worker.note_memory_kills()
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Until nothing is owed any more. Nothing runs while nothing is."""
        self._watchdog.begin()
        while self._worker is not None and (self._streams or self._loads):
            stuck_s = self._watchdog.tick(time.monotonic())
            if stuck_s is not None:
                _logger.error("the worker made no progress for %.0f s and is killed", stuck_s)
                self._kill(WorkerDeath(HANG, stuck_s))
                return
            for request_id in self._watchdog.take_unanswered_stops():
                self._on_engine_event(StopUnanswered(request_id, is_loading=self._loading is not None))
            await asyncio.sleep(min(TICK_S, self._patience.stop_s))

    def _start_worker(self) -> None:
        loop = asyncio.get_running_loop()
        arrived: deque[Event] = deque()

        def on_event(event: Event) -> None:
            # One wake-up of the loop for all that has arrived by then.
            arrived.append(event)
            if len(arrived) == 1:
                _call_soon(loop, lambda: self._take_events(arrived))

        def on_exit(death: WorkerDeath | None) -> None:
            _call_soon(loop, lambda: self._take_exit(worker, arrived, death))

        self._watchdog = Watchdog(self._patience)
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
        if isinstance(event, Heartbeat):
            self._watchdog.heard(event)
            return
        self._watchdog.heard()
        if isinstance(event, _OF_ONE_REQUEST):
            stream = self._streams.get(event.request_id)
            if stream is not None:
                stream.put_nowait(cast(RequestEvent, event))
            return
        if isinstance(event, ModelLoadProgress):
            self._loading = event.config
        elif isinstance(event, ModelLoaded):
            self._loading, self._model_info = None, event.info
            self._end_load(event.info.config, event.info)
        elif isinstance(event, ModelLoadFailed):
            self._loading = self._model_info = None
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

    def _take_exit(self, worker: WorkerProcess, arrived: deque[Event], death: WorkerDeath | None) -> None:
        if worker is not self._worker:
            return
        self._take_events(arrived)
        if self._exited is not None and not self._exited.done():
            self._exited.set_result(None)
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        death = death or WorkerDeath("exit code 0")
        info, loading = self._model_info, self._loading
        self._worker = self._model_info = None
        if not self._is_closing:
            self._loading = None
        config = loading or (None if info is None else info.config)
        message = death.while_loading(loading) if loading is not None else death.while_replying(config, info)
        for request_id, stream in list(self._streams.items()):
            stream.put_nowait(RequestFailed(request_id, ErrorCode.ENGINE_DIED, message))
        for waited_for in list(self._loads):
            self._end_load(waited_for, EngineError(ErrorCode.ENGINE_DIED, death.while_loading(waited_for)))
        if not self._is_closing:
            self._on_engine_event(WorkerExited(death.cause, message, loading))


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    # A loop that is closed has nobody left to tell.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


def _cannot_start(error: OSError) -> EngineError:
    return EngineError(
        ErrorCode.ENGINE_DIED, f"the engine could not be started ({error.strerror or error}): try again"
    )
