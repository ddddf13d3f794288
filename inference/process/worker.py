"""The worker process: commands come in on stdin, events go out on stdout, everything else on stderr (the log)."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import BinaryIO

from inference.activity import Activity
from inference.engine import Engine
from inference.events import Event, GrammarChecked
from inference.grammar_check import grammar_problem
from inference.load_marks import LoadMarks
from inference.process.heartbeat import start_heartbeat
from inference.process.parent_watch import end_with_parent
from inference.process.wire import (
    Abort,
    BrokenFrame,
    CheckGrammar,
    Count,
    Explain,
    Forget,
    Load,
    Prefetch,
    SetPins,
    Stop,
    Submit,
    encode_frame,
    read_frame,
)
from inference.process.worker_config import WorkerConfig
from inference.request import RequestId
from inference.sampling_params import SamplingParams

_logger = logging.getLogger(__name__)
# When the window is gone without a word (killed), what is being written may still be finished.
_ORPHAN_STORE_TIMEOUT_S = 2.0


def main(config_json: str, parent_pid: int) -> None:
    end_with_parent(parent_pid)
    config = WorkerConfig.from_json(config_json)
    # Ctrl+C in a terminal reaches the whole process group; the client decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    commands, events = _take_over_standard_streams()
    writer = _EventWriter(events)
    activity = Activity()
    start_heartbeat(activity, writer.emit)
    marks = LoadMarks(config.load_marks)
    engine = Engine(writer.emit, config.kv_store, config.store_budget_bytes, activity, marks)
    stop_order = _StopOrder()
    thread = threading.Thread(target=_infer, args=(engine, stop_order), name="inference", daemon=True)
    thread.start()
    _follow_commands(commands, engine, stop_order, writer)
    thread.join(stop_order.store_timeout_s + 1.0)
    # Without the native library's own tear-down: nothing is left that it would have to save.
    os._exit(0)


class _StopOrder:
    """How long the store may take once the engine is stopped; written before, read after the stop."""

    store_timeout_s = _ORPHAN_STORE_TIMEOUT_S


class _EventWriter:
    """Events from several threads, one whole frame at a time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        frame = encode_frame(event)
        with self._lock:
            try:
                self._stream.write(frame)
                self._stream.flush()
            except OSError:
                # The window is gone; stdin tells the same and stops the engine.
                _logger.info("nobody reads events any more")


def _take_over_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Own descriptors for frames; whatever else prints to stdout then lands in the log, not between frames."""
    commands = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return commands, events


def _infer(engine: Engine, stop_order: _StopOrder) -> None:
    try:
        engine.run(lambda: stop_order.store_timeout_s)
    except BaseException:
        # A worker without its inference thread would keep everyone waiting: end it, the client starts another.
        _logger.exception("the inference thread ended")
        os._exit(1)


def _check_grammar(request_id: RequestId, sampling: SamplingParams, writer: _EventWriter) -> None:
    """On a thread of its own: someone is typing it, and replies go on meanwhile."""

    def check() -> None:
        writer.emit(GrammarChecked(request_id, grammar_problem(sampling)))

    threading.Thread(target=check, name="grammar check", daemon=True).start()


def _follow_commands(
    commands: BinaryIO, engine: Engine, stop_order: _StopOrder, writer: _EventWriter
) -> None:
    """Until Stop or the end of the stream; stops the engine."""
    try:
        while (command := read_frame(commands)) is not None:
            match command:
                case Submit(request):
                    engine.submit(request)
                case Load(config):
                    engine.load(config)
                case Prefetch(request, how_much):
                    engine.prefetch(request, how_much)
                case Explain(request):
                    engine.explain(request)
                case Count(request):
                    engine.count(request)
                case CheckGrammar(request_id, sampling):
                    _check_grammar(request_id, sampling, writer)
                case Forget(owner):
                    engine.forget(owner)
                case SetPins(owners):
                    engine.set_pins(owners)
                case Abort(request_id):
                    engine.abort(request_id)
                case Stop(store_timeout_s):
                    stop_order.store_timeout_s = store_timeout_s
                    break
                case _:
                    _logger.error("%s is no command", type(command).__name__)
    except BrokenFrame:
        _logger.exception("the commands cannot be followed any further")
    engine.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
