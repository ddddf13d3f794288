"""One reply on a scheduler of its own, with nobody else about."""

from __future__ import annotations

from collections.abc import Callable

from inference.events import EngineStats, Event, RequestFailed
from inference.kvcache.block_store import BlockStore
from inference.loaded_model import LoadedModel
from inference.metrics import KVUsage
from inference.reply_run import ReplyRun
from inference.request import EngineError, GenerationRequest
from inference.scheduler import Scheduler


class LoneRun:
    """reply: its counters, once run() has returned, and in on_event."""

    def __init__(self, request: GenerationRequest, loaded: LoadedModel, store: BlockStore | None) -> None:
        self.reply = ReplyRun(request, loaded, store, arrived=0.0)
        self.events: list[Event] = []
        self._on_event: Callable[[Event], None] = lambda event: None
        self._scheduler = Scheduler(loaded, store, self._emit, lambda: KVUsage(0, 0, 0, 0, 0, 0, 0, 0))
        self._scheduler.submit(self.reply)

    def _emit(self, event: Event) -> None:
        if not isinstance(event, EngineStats):
            self.events.append(event)
            self._on_event(event)

    def run(self, on_event: Callable[[Event], None] = lambda event: None) -> ReplyRun:
        """To the end, and what it leaves handed to the store. on_event: at each, before anything else happens.

        Raises EngineError where the request fails.
        """
        self._on_event = on_event
        while self._scheduler.has_replies:
            self._scheduler.step()
        for event in self.events:
            if isinstance(event, RequestFailed):
                raise EngineError(event.code, event.message)
        return self.reply

    def cancel(self) -> None:
        self._scheduler.cancel(self.reply.request.request_id)


def run_alone(request: GenerationRequest, loaded: LoadedModel, store: BlockStore | None) -> ReplyRun:
    return LoneRun(request, loaded, store).run()
