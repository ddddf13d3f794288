"""The inference thread: loads models, and hands what is asked of the loaded one to the scheduler, in the order it came."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

from inference.activity import Activity
from inference.context_fit import count_prompt, fit_prompt
from inference.engine_orders import Count, Explain, Forget, Order, Prefetch, Submitted
from inference.events import (
    EngineStats,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    Phase,
    PhaseChanged,
    PromptCounted,
    RequestFailed,
    RequestFinished,
)
from inference.kvcache.model_digest import ModelDigests
from inference.llama.model import read_model_header
from inference.llama.native_library import NativeLibraryMissing
from inference.load_marks import LoadMarks
from inference.loaded_model import LoadedModel
from inference.metrics import KVUsage
from inference.model_config import ModelConfig
from inference.prepared_reply import prepare_reply
from inference.prompt import Prompt
from inference.prompt_questions import explain
from inference.prompt_thread import PromptThread
from inference.reply_run import ReplyRun
from inference.request import EngineError, ErrorCode, GenerationRequest, ReadAhead, RequestId
from inference.scheduler import Scheduler
from inference.store_opening import open_store
from inference.type_ahead import TypeAhead

_logger = logging.getLogger(__name__)
_LOAD_PROGRESS_STEP = 0.02
T = TypeVar("T")


class Engine:
    """submit, load, prefetch, forget, set_pins, abort and stop may be called from any thread; run is the inference thread."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        kv_store: Path | None,
        store_budget_bytes: int | None,
        activity: Activity | None = None,
        load_marks: LoadMarks | None = None,
    ) -> None:
        """emit may be called from several threads. kv_store None: nothing is kept on disk."""
        self._activity = activity or Activity()
        self._load_marks = load_marks or LoadMarks(None)
        self._emit = emit
        self._waiting: deque[Order] = deque()
        self._lock = threading.Lock()
        # Set after every change that the inference thread may wait for.
        self._wake = threading.Event()
        self._prompts = PromptThread(self._wake.set)
        self._prefetch: Prefetch | None = None
        self._scheduler: Scheduler | None = None
        self._taken_up: RequestId | None = None
        self._cancelled: set[RequestId] = set()
        self._is_stopping = False
        self._loaded: LoadedModel | None = None
        self._last_load = (0.0, 0.0)
        self._last_used_bytes = 0
        self._store = open_store(
            kv_store,
            store_budget_bytes,
            emit,
            on_stored=lambda: emit(EngineStats(self._kv_usage(self._last_used_bytes))),
        )
        self._digests = ModelDigests(kv_store / "model-digests.json") if kv_store and self._store else None

    # --- from any thread ---------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> None:
        self._put(Submitted(request, time.monotonic()))

    def load(self, config: ModelConfig) -> None:
        self._put(config)
        if self._scheduler is not None and self._scheduler.has_replies:
            # The replies go first; whether the file is a model at all can be told now.
            threading.Thread(target=self._check_file, args=(config,), daemon=True).start()

    def _check_file(self, config: ModelConfig) -> None:
        try:
            read_model_header(Path(config.path))
        except EngineError as error:
            with self._lock:
                if config not in self._waiting:
                    return
                self._waiting.remove(config)
                loaded = self._loaded
            self._wake.set()
            self._emit(ModelLoadFailed(config, error.code, str(error)))
            if loaded is not None:
                self._emit(ModelLoaded(loaded.info))

    def prefetch(self, request: GenerationRequest, how_much: ReadAhead = ReadAhead.STORED) -> None:
        """Read ahead, whenever no reply is to be computed; see ReadAhead. The next call takes the place of this one."""
        self._put(Prefetch(request, how_much))

    def explain(self, request: GenerationRequest) -> None:
        """Tell what the store has of the request's prompt."""
        self._put(Explain(request))

    def count(self, request: GenerationRequest) -> None:
        """Tell how the request would fit into the context, after the step that runs. Loads no model for it."""
        self._put(Count(request))

    def forget(self, owner: str) -> None:
        """Remove what is stored for the owner and for nobody else."""
        self._put(Forget(owner))

    def set_pins(self, owners: Sequence[str]) -> None:
        """What is stored for these owners, and for no others, is never evicted."""
        if self._store is not None:
            self._store.set_pins(owners)

    def _put(self, item: Order) -> None:
        with self._lock:
            self._waiting.append(item)
        self._wake.set()

    def abort(self, request_id: RequestId) -> None:
        """End a waiting or running request with finish_reason cancelled; an unknown one is ignored."""
        with self._lock:
            waiting = next(
                (w for w in self._waiting if isinstance(w, Submitted) and w.request.request_id == request_id),
                None,
            )
            if waiting is not None:
                self._waiting.remove(waiting)
            elif self._taken_up == request_id:
                # Its model is being loaded: it ends as soon as that is done.
                self._cancelled.add(request_id)
            elif self._scheduler is not None:
                self._scheduler.cancel(request_id)
        self._wake.set()
        if waiting is not None:
            self._finish_unread(request_id, time.monotonic() - waiting.arrived)

    def stop(self) -> None:
        """Cancel what runs, drop what waits, and let run() return after storing what is whole."""
        with self._lock:
            self._is_stopping = True
            if self._scheduler is not None:
                self._scheduler.cancel_all()
        self._wake.set()

    # --- the inference thread ----------------------------------------------------------------------

    def run(self, store_timeout_s: Callable[[], float]) -> None:
        """Until stop(); then wait at most store_timeout_s() for the store to write what was handed to it."""
        while not self._is_stopping:
            self._wake.clear()
            self._prompts.take_built()
            while self._waiting and (item := self._next()) is not None:
                self._activity.advance()
                self._take_up(item)
            scheduler = self._scheduler
            if self._loaded is not None and scheduler is not None and scheduler.has_work:
                with self._activity.step(self._loaded.context):
                    scheduler.step()
            elif self._prompts.is_busy:
                # Not at rest: whoever waits for an answer is told that it is at it.
                self._wake.wait()
            else:
                with self._activity.resting():
                    self._wake.wait()
        self._prompts.close()
        if self._scheduler is not None:
            self._scheduler.cancel_all()
            while self._scheduler.has_replies:
                self._scheduler.step()
        if self._store is not None:
            self._store.close(store_timeout_s())
            self._emit(EngineStats(self._read_kv_usage()))

    def _next(self) -> Order | None:
        """The first item, if it can be taken up beside the replies that run; those behind it wait with it, but for
        what is only to be counted."""
        with self._lock:
            for item in self._waiting:
                if isinstance(item, Count):
                    self._waiting.remove(item)
                    return item
            if not self._waiting or self._is_stopping or self._must_wait(self._waiting[0]):
                return None
            item = self._waiting.popleft()
            self._taken_up = item.request.request_id if isinstance(item, Submitted) else None
            return item

    def _must_wait(self, item: Order) -> bool:
        scheduler = self._scheduler
        if scheduler is None:
            return False
        # A model is not freed under those who use it, prompts that are being built with it included.
        is_used = scheduler.has_replies or self._prompts.is_busy
        match item:
            case ModelConfig():
                return is_used and not self._is_loaded(item)
            case Forget():
                # What a reply stores at its end would come after it.
                return any(run.request.owner == item.owner for run in scheduler.runs())
            case Prefetch() | Count():
                return False
            case _:
                return is_used and not self._is_loaded(item.request.model)

    def _is_loaded(self, config: ModelConfig) -> bool:
        return self._loaded is not None and self._loaded.info.config == config

    def _take_up(self, item: Order) -> None:
        match item:
            case ModelConfig():
                self._load(item)
            case Submitted():
                self._submit(item)
            case Prefetch():
                self._look_ahead(item)
            case Explain():
                self._explain(item.request)
            case Count():
                self._count(item.request)
            case Forget():
                if self._store is not None:
                    self._store.forget(item.owner)

    def _load(self, config: ModelConfig) -> ModelLoadFailed | None:
        """Make config the loaded model; both outcomes are told to the outside, a failure is returned too."""
        if self._loaded is not None and self._is_loaded(config):
            self._emit(ModelLoaded(self._loaded.info))
            return None
        started = time.monotonic()
        failure = None
        try:
            # A file that is no model costs nothing: the former one stays loaded.
            read_model_header(Path(config.path))
            if self._loaded is not None:
                self._scheduler = None
                self._loaded.close()
                self._loaded = None
            with self._load_marks.loading(config):
                self._loaded = LoadedModel(config, self._digests, self._load_progress(config))
            with self._lock:
                self._scheduler = Scheduler(self._loaded, self._store, self._emit, self._read_kv_usage)
        except NativeLibraryMissing as error:
            failure = ModelLoadFailed(config, ErrorCode.MODEL_LOAD_FAILED, str(error))
        except EngineError as error:
            failure = ModelLoadFailed(config, error.code, str(error))
        except Exception as error:
            _logger.exception("loading failed")
            failure = ModelLoadFailed(config, ErrorCode.INTERNAL, f"the model could not be loaded: {error}")
        self._last_load = (started, time.monotonic())
        if failure is not None:
            self._emit(failure)
        if self._loaded is not None:
            # After a failure: the former model, so that everyone knows what is there.
            self._emit(ModelLoaded(self._loaded.info))
            self._emit(EngineStats(self._read_kv_usage()))
        return failure

    def _load_progress(self, config: ModelConfig) -> Callable[[float], bool]:
        shown = 0.0
        # Before the library is at it: if that ends the process, everyone knows by what.
        self._emit(ModelLoadProgress(config, shown))

        def on_progress(fraction: float) -> bool:
            nonlocal shown
            self._activity.advance()
            if fraction - shown >= _LOAD_PROGRESS_STEP:
                shown = fraction
                self._emit(ModelLoadProgress(config, fraction))
            return not self._is_stopping

        return on_progress

    def _submit(self, submitted: Submitted) -> None:
        """Hand a request to the scheduler, once its model is loaded."""
        request, taken_up = submitted.request, time.monotonic()
        try:
            if not self._is_loaded(request.model):
                self._emit(PhaseChanged(request.request_id, Phase.LOADING))
                if (failure := self._load(request.model)) is not None:
                    raise EngineError(failure.code, failure.message)
            assert self._loaded is not None
            assert self._scheduler is not None
            # Loading is told apart from everything else, also when a load ordered earlier made this request wait.
            load_started, load_ended = self._last_load
            load_started = max(load_started, submitted.arrived)
            load_s = max(0.0, load_ended - load_started)
            load_before_s = max(0.0, min(load_ended, taken_up) - load_started)
            # A draft that waits to be built is this message, or another chat's.
            self._prefetch = None
            run = ReplyRun(
                request,
                self._loaded,
                self._store,
                arrived=submitted.arrived + load_s,
                queued_s=taken_up - submitted.arrived - load_before_s,
                load_s=load_s,
                preparation=self._prompts.build(partial(prepare_reply, self._loaded, request)),
            )
            with self._lock:
                run.is_cancelled = request.request_id in self._cancelled
                self._scheduler.submit(run)
        except EngineError as error:
            self._emit(RequestFailed(request.request_id, error.code, str(error)))
        finally:
            with self._lock:
                self._taken_up = None
                self._cancelled.discard(request.request_id)

    def _look_ahead(self, prefetch: Prefetch) -> None:
        request, loaded, scheduler = prefetch.request, self._loaded, self._scheduler
        if loaded is None or scheduler is None or not self._is_loaded(request.model):
            return
        self._prefetch = prefetch

        def make() -> Prompt | None:
            fitted = partial(fit_prompt, loaded.prompt_builder, request, loaded.context_size)
            return fitted().prompt if self._prefetch is prefetch else None

        def take(built: Future[Prompt | None]) -> None:
            try:
                prompt = built.result()
            except EngineError as error:
                # Whoever sends the message will be told; nobody asked yet.
                _logger.info("nothing is read ahead: %s", error)
                return
            if prompt is not None and self._prefetch is prefetch:
                store = None if request.is_private else self._store
                scheduler.look_ahead(TypeAhead(loaded, store, prompt, prefetch.how_much))

        self._prompts.build_for(make, take)

    def _count(self, request: GenerationRequest) -> None:
        loaded, request_id = self._loaded, request.request_id
        if loaded is None or not self._is_loaded(request.model):
            self._emit(RequestFailed(request_id, ErrorCode.MODEL_NOT_LOADED, "the model is not loaded"))
            return
        make = partial(count_prompt, loaded.prompt_builder, request, loaded.context_size)
        self._answer(request_id, make, partial(PromptCounted, request_id))

    def _explain(self, request: GenerationRequest) -> None:
        if (failure := self._load(request.model)) is not None:
            self._emit(RequestFailed(request.request_id, failure.code, failure.message))
            return
        assert self._loaded is not None
        make = partial(self._loaded.prompt_builder.build, request)
        self._answer(
            request.request_id, make, partial(explain, self._loaded, self._store, request.request_id)
        )

    def _answer(self, request_id: RequestId, make: Callable[[], T], answer: Callable[[T], Event]) -> None:
        """make(): on the prompt thread; answer(): on this one, of what was made."""

        def take(built: Future[T]) -> None:
            try:
                self._emit(answer(built.result()))
            except EngineError as error:
                self._emit(RequestFailed(request_id, error.code, str(error)))

        self._prompts.build_for(make, take)

    def _finish_unread(self, request_id: RequestId, queued_s: float) -> None:
        self._emit(RequestFinished.unread(request_id, queued_s, self._kv_usage(self._last_used_bytes)))

    def _read_kv_usage(self) -> KVUsage:
        """On the inference thread: only it may ask the context."""
        self._last_used_bytes = self._loaded.context.state_size() if self._loaded is not None else 0
        return self._kv_usage(self._last_used_bytes)

    def _kv_usage(self, used_bytes: int) -> KVUsage:
        loaded, store = self._loaded, self._store
        return KVUsage(
            used_bytes=used_bytes,
            allocated_bytes=loaded.context.kv_allocated_bytes if loaded is not None else 0,
            store_bytes=store.store_bytes if store is not None else 0,
            store_budget_bytes=store.budget_bytes if store is not None else 0,
            bytes_read=store.bytes_read if store is not None else 0,
            bytes_written=store.bytes_written if store is not None else 0,
            bytes_written_today=store.bytes_written_today if store is not None else 0,
            bytes_written_total=store.bytes_written_total if store is not None else 0,
        )
