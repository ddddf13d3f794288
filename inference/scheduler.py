"""Continuous batching: each step decodes one token of every reply that is being written, and a chunk of a prompt that is
being read.

waiting → reading (prefill) → writing (decode) → finished; a reply that gives up its KV cells goes back to waiting. As in
vLLM and nano-vllm, but that rows come from the prefix store where it has them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListOf

from inference.events import EngineStats, Event, Phase, PhaseChanged, RequestFailed
from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import num_leading_equal
from inference.llama.context import DecodeAborted, NoFreeCells
from inference.llama.sequence import BatchPart, Sequence
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.metrics import KVUsage
from inference.reply_run import ReplyRun
from inference.request import ContextFit, EngineError, ErrorCode, FinishReason, RequestId
from inference.type_ahead import TypeAhead

_logger = logging.getLogger(__name__)
_STATS_INTERVAL_S = 0.5
# While others write, a chunk of a prompt is as long as this lets them wait, by the measured rate.
_MOST_WAIT_S = 0.1
_LEAST_CHUNK = 32
# Cells that a reply beside others should find when it begins, so that it is not put off at once.
_MOST_RESERVED_CELLS = 128
_NO_ROOM_ASIDE = "there is no room beside what is kept in memory alone"
_Part = tuple[ReplyRun, BatchPart]


class Scheduler:
    """For the inference thread, but for cancel(). One loaded model, its context and everyone who uses it."""

    def __init__(
        self,
        loaded: LoadedModel,
        store: BlockStore | None,
        emit: Callable[[Event], None],
        kv_usage: Callable[[], KVUsage],
    ) -> None:
        self._loaded, self._context = loaded, loaded.context
        self._store, self._emit, self._kv_usage = store, emit, kv_usage
        self._lock = threading.Lock()
        self._waiting: list[ReplyRun] = []
        self._running: list[ReplyRun] = []
        # Those whose stop ends the batch that is being computed.
        self._interruptible: set[RequestId] = set()
        # Sequences that nobody uses and no store has, oldest first.
        self._unsaved: list[Sequence] = []
        self._ahead: TypeAhead | None = None
        self._step = 0
        self._prefill_tokens_per_s: float | None = None
        self._stats_told = time.monotonic()

    @property
    def has_replies(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def has_work(self) -> bool:
        if self._waiting and not self._running:
            return any(run.is_prepared or run.is_cancelled for run in self._waiting)
        return bool(self._running or self._ahead is not None)

    def runs(self) -> list[ReplyRun]:
        return [*self._running, *self._waiting]

    def submit(self, run: ReplyRun) -> None:
        # What was to be read ahead may be the same chat, less far.
        self._ahead = None
        with self._lock:
            self._waiting.append(run)

    def look_ahead(self, ahead: TypeAhead) -> None:
        """Read this when nobody waits for a reply; it takes the place of what was to be read ahead before."""
        self._ahead = ahead

    def cancel(self, request_id: RequestId) -> bool:
        """From any thread: let a reply end within one batch. False: there is no such reply."""
        with self._lock:
            for run in self.runs():
                if run.request.request_id == request_id:
                    run.is_cancelled = True
                    if request_id in self._interruptible:
                        self._context.abort_flag.set()
                    return True
        return False

    def cancel_all(self) -> None:
        for run in self.runs():
            self.cancel(run.request.request_id)

    # --- one step ----------------------------------------------------------------------------------

    def step(self) -> None:
        """At most one batch."""
        self._step += 1
        self._end_cancelled()
        if self._waiting:
            self._admit()
        parts = self._next_parts()
        if parts:
            self._decode(parts)
        elif not self.has_replies and self._ahead is not None:
            self._read_ahead(self._ahead)
        if (now := time.monotonic()) - self._stats_told >= _STATS_INTERVAL_S:
            self._stats_told = now
            self._emit(EngineStats(self._kv_usage()))

    def _end_cancelled(self) -> None:
        for run in self.runs():
            if run.is_cancelled:
                run.finish_reason = FinishReason.CANCELLED
                self._finish(run)

    def _next_parts(self) -> list[_Part]:
        writing: list[ReplyRun] = []
        reading: list[ReplyRun] = []
        for run in self._running:
            (writing if run.num_remaining == 1 else reading).append(run)
        while (num_free := self._context.num_free_cells) < len(writing) + bool(reading):
            if not self._make_room():
                break
            writing = [run for run in writing if run.sequence is not None]
            reading = [run for run in reading if run.sequence is not None]
        parts = [(run, run.next_part(1, 1)) for run in writing]
        most = min(self._context.params.n_ubatch, num_free) - len(parts)
        if reading and most > 0:
            # Whoever has waited longest; of those that came at once, the first.
            reader = min(reading, key=lambda run: (run.last_served, run.arrived))
            reader.last_served = self._step
            parts.append((reader, reader.next_part(self._chunk_size(bool(writing)), most)))
        return parts

    def _chunk_size(self, others_write: bool) -> int:
        """A power of two, so that chunks of several sizes end at common positions."""
        size = self._context.params.n_ubatch
        if others_write:
            affordable = _MOST_WAIT_S * (self._prefill_tokens_per_s or 0.0)
            while size // 2 >= _LEAST_CHUNK and size > affordable:
                size //= 2
        return size

    def _decode(self, parts: list[_Part]) -> None:
        context = self._context
        with self._lock:
            parts = [(run, part) for run, part in parts if not run.is_cancelled]
            if not parts:
                return
            self._interruptible = self._those_who_may_interrupt(parts)
        for run, part in parts:
            run.hand_over(part)
        started = time.monotonic()
        failure: EngineError | None = None
        was_aborted = False
        try:
            context.decode([part for _, part in parts])
        except DecodeAborted:
            was_aborted = True
        except EngineError as error:
            failure = error
        finally:
            with self._lock:
                self._interruptible = set()
                context.abort_flag.clear()
        if was_aborted or (isinstance(failure, NoFreeCells) and len(self._running) > 1 and self._make_room()):
            self._join_again(parts)
        elif failure is not None:
            for run, _ in parts:
                self._fail(run, failure.code, str(failure))
        else:
            self._take(parts, time.monotonic() - started)

    def _those_who_may_interrupt(self, parts: list[_Part]) -> set[RequestId]:
        """Dropping the batch takes from the others what it computed of theirs, and from recurrent ones all they hold."""
        if len(parts) == 1:
            return {parts[0][0].request.request_id}
        if self._loaded.model.is_recurrent:
            return set()
        return {run.request.request_id for run, part in parts if len(part.token_ids) > 1}

    def _take(self, parts: list[_Part], seconds: float) -> None:
        # A batch has one part at most that is no last token of its sequence, as its last.
        if not parts[-1][1].want_logits:
            self._observe_prefill(len(parts[-1][1].token_ids), seconds)
        for run, part in parts:
            try:
                self._emit_all(run.took_part(part, seconds))
                if part.want_logits:
                    self._emit_all(run.sample())
                if run.finish_reason is not None:
                    self._finish(run)
            except Exception as error:
                self._fail_by(run, error)

    def _observe_prefill(self, num_tokens: int, seconds: float) -> None:
        if num_tokens >= _LEAST_CHUNK:
            rate, known = num_tokens / seconds, self._prefill_tokens_per_s
            self._prefill_tokens_per_s = rate if known is None else known + 0.3 * (rate - known)

    def _join_again(self, parts: list[_Part]) -> None:
        """Where the library could not take the dropped batch back, the sequence is empty now."""
        for run, _ in parts:
            if run.sequence is not None and not run.sequence.token_ids and not run.is_cancelled:
                try:
                    self._emit_all(run.join(run.sequence))
                except Exception as error:
                    self._fail_by(run, error)

    # --- who may run ---------------------------------------------------------------------------------

    def _admit(self) -> None:
        """The first that waits, if it can: in the order they came, and one a step, so that nobody's decode waits for many
        restores. Prompts are made in that order too; one that is not ready holds up nobody."""
        run = next((run for run in self._waiting if run.is_prepared), None)
        if run is None:
            return
        try:
            run.read()
            sequence = self._sequence_for(run)
            if sequence is None:
                return
            self._emit_all(run.join(sequence))
            with self._lock:
                self._waiting.remove(run)
                self._running.append(run)
        except Exception as error:
            self._fail_by(run, error)

    def _sequence_for(self, run: ReplyRun) -> Sequence | None:
        """None: it has to wait for a sequence or for cells. Sequences that nobody uses are emptied unless they would be
        lost: their rows make everyone's attention longer, and reading them back costs less (see docs/engine.md)."""
        used = [other.sequence for other in self._running]
        free = [sequence for sequence in self._context.sequences if sequence not in used]
        if not free:
            return None
        best, num_common = _longest_prefix(free, run.token_ids)
        if not num_common and best in self._unsaved:
            best = min(free, key=lambda sequence: sequence.num_tokens)
        is_aside = run.request.is_aside
        if is_aside and best in self._unsaved and num_common < best.num_tokens:
            # It would cut off what is nowhere else.
            best = min(free, key=lambda sequence: (sequence in self._unsaved, sequence.num_tokens))
            if best in self._unsaved:
                raise EngineError(ErrorCode.PROMPT_TOO_LONG, _NO_ROOM_ASIDE)
            _, num_common = _longest_prefix([best], run.token_ids)
        needed = len(run.token_ids) - num_common + 1
        if is_aside:
            needed += run.request.sampling.max_tokens or 0
        if self._running:
            # The others' prompts are not all in their cells yet.
            needed += sum(other.num_remaining for other in self._running)
            needed += min(_MOST_RESERVED_CELLS, self._context.n_ctx // 8)
        self._empty_idle(keep=best)
        while self._context.num_free_cells + best.num_tokens - num_common < needed:
            given_up = next((s for s in self._unsaved if s is not best), None)
            if given_up is None or is_aside:
                break
            self._give_up(given_up)
        else:
            needed = 0
        if is_aside and needed:
            raise EngineError(ErrorCode.PROMPT_TOO_LONG, _NO_ROOM_ASIDE)
        if needed and self._running:
            return None
        if best in self._unsaved:
            self._unsaved.remove(best)
        return best

    def _empty_idle(self, *, keep: Sequence | None = None) -> bool:
        """Empty what nobody uses and the store has. False: there was nothing."""
        used = [run.sequence for run in self._running]
        idle = [
            sequence
            for sequence in self._context.sequences
            if sequence.token_ids and sequence is not keep and sequence not in (*used, *self._unsaved)
        ]
        for sequence in idle:
            sequence.clear()
        return bool(idle)

    def _give_up(self, sequence: Sequence) -> None:
        self._unsaved.remove(sequence)
        sequence.clear()

    def _make_room(self) -> bool:
        """Empty a sequence that nobody uses, or else let the youngest reply wait. False: there is none but one."""
        if self._empty_idle():
            return True
        if self._unsaved:
            self._give_up(self._unsaved[0])
            return True
        if len(self._running) < 2:
            return False
        youngest = max(self._running, key=lambda run: run.arrived)
        youngest.leave()
        with self._lock:
            self._running.remove(youngest)
            self._waiting.append(youngest)
            self._waiting.sort(key=lambda run: run.arrived)
        self._emit(PhaseChanged(youngest.request.request_id, Phase.QUEUED))
        return True

    # --- the end of a reply ----------------------------------------------------------------------------

    def _finish(self, run: ReplyRun) -> None:
        self._emit_all(run.pending_delta())
        self._remove(run)
        self._emit(run.finished(self._kv_usage()))
        # Off the reply's path: the text is out, only the next step waits for the copy.
        run.store_sequence()
        if run.sequence is not None and run.sequence.token_ids:
            if run.request.is_aside and not run.reused_tokens:
                run.sequence.clear()
            elif self._store is None or (run.is_private and not run.request.is_aside):
                self._unsaved.append(run.sequence)
            elif self._running:
                # It would slow the others down, and is read back in no time.
                run.sequence.clear()
        run.close()
        self._emit(EngineStats(self._kv_usage()))

    def _fail(self, run: ReplyRun, code: ErrorCode, message: str, fit: ContextFit | None = None) -> None:
        self._remove(run)
        self._emit(RequestFailed(run.request.request_id, code, message, fit))
        run.close()

    def _fail_by(self, run: ReplyRun, error: Exception) -> None:
        """Whatever went wrong in one reply ends it, and no other."""
        if isinstance(error, EngineError):
            self._fail(run, error.code, str(error), error.fit)
            return
        _logger.error("request %s failed", run.request.request_id, exc_info=error)
        self._fail(run, ErrorCode.INTERNAL, f"something went wrong ({error}); the log has more: try again")

    def _remove(self, run: ReplyRun) -> None:
        with self._lock:
            for runs in (self._running, self._waiting):
                if run in runs:
                    runs.remove(run)

    # --- reading ahead ---------------------------------------------------------------------------------

    def _read_ahead(self, ahead: TypeAhead) -> None:
        try:
            if ahead.sequence is None:
                ahead.join(self._sequence_to_read_ahead(ahead))
            read_before, started = ahead.prefilled_tokens, time.monotonic()
            # Short chunks, since a reply that is asked for meanwhile waits for the end of one.
            goes_on = ahead.step(self._chunk_size(True))
            self._observe_prefill(ahead.prefilled_tokens - read_before, time.monotonic() - started)
            if not goes_on:
                self._ahead = None
                self._emit(EngineStats(self._kv_usage()))
        except (EngineError, DecodeAborted) as error:
            # Whoever sends the message will be told; nobody asked yet.
            _logger.info("nothing was read ahead: %s", error)
            self._ahead = None
        except Exception:
            _logger.exception("reading ahead failed")
            self._ahead = None

    def _sequence_to_read_ahead(self, ahead: TypeAhead) -> Sequence:
        best, num_common = _longest_prefix(self._context.sequences, ahead.token_ids)
        self._empty_idle(keep=best)
        if best in self._unsaved and not num_common:
            self._unsaved.remove(best)
        return best

    def _emit_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._emit(event)


def _longest_prefix(sequences: Iterable[Sequence], token_ids: ListOf[TokenId]) -> tuple[Sequence, int]:
    """The sequence that shares most leading tokens, and how many; of equals an empty one."""
    common = [(num_leading_equal(s.token_ids, token_ids), s) for s in sequences]
    num_common, best = max(common, key=lambda pair: (pair[0], not pair[1].token_ids))
    return best, num_common
