"""One request from prompt to last token, driven step by step by the scheduler: it says which tokens are to be decoded
next, and is told when they were."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace

from inference.events import Event, Phase, PhaseChanged, PrefillProgress, RequestFinished, TokenDelta
from inference.kvcache.block import CheckpointKind
from inference.kvcache.block_store import BlockStore
from inference.llama.sampler import Sampler
from inference.llama.sequence import BatchPart, Sequence
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.metrics import KVUsage, PromptCounts, RequestTimings
from inference.miss import Miss, explain_miss
from inference.prepared_reply import PreparedReply, prepare_reply
from inference.prompt import Prompt
from inference.reply_text import ReplyText
from inference.request import ContextFit, FinishReason, GenerationRequest
from inference.stored_sequence import StoredSequence
from inference.token_logprobs import TokenLogprobs

# A delta goes out at the first token and then at most this often, as often as the window paints: each costs both
# processes as much as the whole of two or three tokens.
_DELTA_INTERVAL_S = 1 / 30


class ReplyRun:
    """State of one request. Counters are raised where the work is handed over, nowhere else.

    waiting until is_prepared → read() → join(sequence) → [next_part() → took_part()] … → sample() … until finish_reason is set.
    leave() goes back to waiting: what was read is read again later, and counted as such.
    """

    def __init__(
        self,
        request: GenerationRequest,
        loaded: LoadedModel,
        store: BlockStore | None,
        *,
        arrived: float,
        queued_s: float = 0.0,
        load_s: float = 0.0,
        preparation: Future[PreparedReply] | None = None,
    ) -> None:
        """arrived: time.monotonic() when the request came in. load_s: of the time since, what loading took.
        preparation: of this request, on another thread; None: read() does it."""
        self.request = request
        self._loaded = loaded
        self._store = None if request.is_private else store
        self._arrived, self._queued_s, self._load_s = arrived, queued_s, load_s
        self._preparation, self._asked_at = preparation, time.monotonic()
        self.prompt: Prompt | None = None
        self.fit: ContextFit | None = None
        self.token_ids: list[TokenId] = []
        self.sequence: Sequence | None = None
        self._stored: StoredSequence | None = None
        self._stops: dict[int, CheckpointKind] = {}
        self.is_cancelled = False
        self.finish_reason: FinishReason | None = None
        self.last_served = 0
        # --- counters
        self.bytes_read = 0
        self.miss: Miss | None = None
        self.reused_tokens = self.restored_tokens = self.prefilled_tokens = 0
        self.reread_tokens = 0
        self.num_preemptions = 0
        self.generated_ids: list[TokenId] = []
        self._begun_ids: tuple[TokenId, ...] = ()
        self._text = ReplyText(loaded.model.vocab, None, ())
        self._reasoning_s = 0.0
        self.tokenize_s = self.restore_s = self.prefill_s = 0.0
        self.ttft_s: float | None = None
        self.decode_s = 0.0
        # --- of the step at hand
        self._sampler: Sampler | None = None
        self._prefill_started = self._read_s = self._last_delta = 0.0
        self._first_token_at = self._last_token_at = 0.0
        self._num_to_prefill = self._num_read = self._num_handed = 0
        self._has_joined = False
        self._pending_logprobs: list[TokenLogprobs] = []
        self._num_told = 0
        self._is_decoding = False

    @property
    def text(self) -> str:
        """The answer, as far as it is shown."""
        return self._text.text

    @property
    def arrived(self) -> float:
        return self._arrived

    @property
    def is_private(self) -> bool:
        return self.request.is_private

    @property
    def seed(self) -> int:
        return self._sampler.seed if self._sampler is not None else 0

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt.token_ids) if self.prompt is not None else 0

    @property
    def num_remaining(self) -> int:
        """Tokens to decode before the next one can be sampled."""
        assert self.sequence is not None
        return len(self.token_ids) - len(self.sequence.token_ids)

    @property
    def counts(self) -> PromptCounts:
        return PromptCounts(
            self.num_prompt_tokens, self.reused_tokens, self.restored_tokens, self.prefilled_tokens
        )

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens after the first by the time between first and last; None for fewer than two."""
        steps = len(self.generated_ids) - 1
        return steps / self.decode_s if steps > 0 and self.decode_s > 0 else None

    # --- from waiting to a sequence and back -----------------------------------------------------------

    @property
    def is_prepared(self) -> bool:
        """Whether read() need not wait for another thread."""
        return self._preparation is None or self._preparation.done()

    def read(self) -> None:
        """Make token ids of the request, once. Raises EngineError."""
        if self.prompt is not None:
            return
        if self._preparation is None:
            prepared = prepare_reply(self._loaded, self.request)
        else:
            prepared = self._preparation.result()
            self._queued_s += max(0.0, prepared.started_at - self._asked_at)
        self.prompt, self.token_ids = prepared.prompt, list(prepared.prompt.token_ids)
        self._begun_ids, self.fit = prepared.begun_ids, prepared.fit
        self._text, self._sampler = prepared.text, prepared.sampler
        self.tokenize_s = prepared.tokenize_s

    def join(self, sequence: Sequence) -> Iterator[Event]:
        """Make the sequence hold as much of the tokens as memory or store have."""
        assert self.prompt is not None
        is_first = not self._has_joined
        self._has_joined = True
        self.sequence = sequence
        self._stored = StoredSequence(self._loaded, sequence, self._store, self.request.owner)
        if self._store is not None:
            yield PhaseChanged(self.request.request_id, Phase.RESTORING)
        started = time.monotonic()
        read_before = self._store.bytes_read if self._store is not None else 0
        brought = self._stored.bring(replace(self.prompt, token_ids=self.token_ids))
        if self._store is not None:
            self.bytes_read += self._store.bytes_read - read_before
        if is_first:
            self.reused_tokens, self.restored_tokens = brought.reused_tokens, brought.restored_tokens
            self._num_handed = sequence.num_tokens
            self.miss = explain_miss(
                brought.miss,
                self.prompt,
                self._loaded.model.vocab,
                num_stored=brought.num_stored,
                num_usable=brought.reused_tokens + brought.restored_tokens,
                has_checkpoints=self._stored.has_checkpoints,
            )
        self._stops = dict(self._checkpoint_stops())
        self._num_to_prefill, self._num_read, self._read_s = self.num_remaining, 0, 0.0
        self._prefill_started = time.monotonic()
        self.restore_s += self._prefill_started - started
        self._is_decoding = False
        yield PhaseChanged(self.request.request_id, Phase.PREFILL)

    def leave(self) -> None:
        """Give the sequence up to others, after what it holds was stored."""
        assert self.sequence is not None
        self.store_sequence()
        self.sequence.clear()
        self.sequence = self._stored = None
        self.num_preemptions += 1

    # --- batches ---------------------------------------------------------------------------------------

    def next_part(self, chunk_size: int, most: int) -> BatchPart:
        """At most `most` tokens. Prefill chunks end at absolute multiples of chunk_size and the last token goes alone,
        so that a cold and a restored run of one prompt decode the same batches and give the same logits. Where state
        must be copied at exact positions, chunks end there too."""
        assert self.sequence is not None
        position, last = self.sequence.num_tokens, len(self.token_ids) - 1
        if position == last:
            return BatchPart(self.sequence, self.token_ids[last:], want_logits=True)
        end = min((position // chunk_size + 1) * chunk_size, last, position + most)
        end = min(end, *(stop for stop in self._stops if stop > position), end)
        return BatchPart(self.sequence, self.token_ids[position:end], want_logits=False)

    def hand_over(self, part: BatchPart) -> None:
        """The part goes to decode now. What was handed over or brought before (the sequence was given up meanwhile, or
        another chat's stop dropped the batch) is counted as read once more, not as the prompt's."""
        assert self.sequence is not None
        start = self.sequence.num_tokens
        end = start + len(part.token_ids)
        first_new = max(start, self._num_handed)
        self.reread_tokens += end - start - max(0, end - first_new)
        if not self._is_decoding:
            self.prefilled_tokens += max(0, min(end, self.num_prompt_tokens) - first_new)
        self._num_handed = max(self._num_handed, end)

    def took_part(self, part: BatchPart, seconds: float) -> Iterable[Event]:
        """The part's rows are in the sequence; the step took so long."""
        assert self.sequence is not None
        assert self._stored is not None
        if self._is_decoding:
            self._stored.keep_one_block()
            return ()
        end, count = self.sequence.num_tokens, len(part.token_ids)
        self._num_read += count
        self._read_s += seconds
        if end in self._stops:
            self._stored.keep_checkpoint(self._stops[end])
        if not part.want_logits:
            self._stored.keep_one_block()
        elapsed = time.monotonic() - self._prefill_started
        if part.want_logits:
            self.prefill_s += elapsed
            self._stored.observe_prefill(self._num_read, self._read_s)
        return (
            PrefillProgress(
                self.request.request_id, self._num_read, self._num_to_prefill, self.counts, elapsed
            ),
        )

    def _checkpoint_stops(self) -> Iterator[tuple[int, CheckpointKind]]:
        assert self._stored is not None
        assert self.prompt is not None
        if self._stored.has_checkpoints:
            last = len(self.token_ids) - 1
            if self.prompt.system_end and self.prompt.system_end <= last:
                yield self.prompt.system_end, "system"
            if self.prompt.user_end and self.prompt.user_end <= last:
                yield self.prompt.user_end, "user"

    def sample(self) -> Iterable[Event]:
        """Choose the next token from the logits of the last part; sets finish_reason when it was the last one."""
        assert self._sampler is not None
        assert self.sequence is not None
        context, vocab = self._loaded.context, self._loaded.model.vocab
        events: list[Event] = []
        if not self._is_decoding:
            self._is_decoding = True
            events.append(PhaseChanged(self.request.request_id, Phase.DECODE))
        reply = self._text
        is_reasoning = reply.is_reasoning
        # A grammar is the answer's; whoever lets a model open reasoning by itself has it in the grammar.
        reply.is_opened_by_prompt &= is_reasoning
        token = self._sampler.sample(
            context.handle, self.sequence.logits_index, use_grammar=not reply.is_opened_by_prompt
        )
        now = time.monotonic()
        if self.ttft_s is None:
            self.ttft_s, self._first_token_at, self._last_token_at = now - self._arrived, now, now
        self.decode_s = now - self._first_token_at
        if vocab.ends_generation(token) and not self.request.sampling.ignore_eos:
            self.finish_reason = FinishReason.STOP
            return events
        if is_reasoning:
            reply.num_reasoning_tokens += 1
            self._reasoning_s += now - self._last_token_at
        self._last_token_at = now
        self.generated_ids.append(token)
        self.token_ids.append(token)
        if self._sampler.logprobs is not None:
            self._pending_logprobs.append(self._sampler.logprobs)
        reply.append(token)
        if now - self._last_delta >= _DELTA_INTERVAL_S:
            self._last_delta = now
            events += self.pending_delta()
        max_tokens = self.request.sampling.max_tokens
        if reply.has_stop_string:
            self.finish_reason = FinishReason.STOP
        elif max_tokens is not None and len(self.generated_ids) >= max_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif self.sequence.num_tokens >= context.n_ctx:
            self.finish_reason = FinishReason.CONTEXT
        return events

    def pending_delta(self) -> Iterable[Event]:
        """What was sampled and not told yet."""
        if self.finish_reason is not None:
            self._text.finish()
        text, reasoning = self._text.take_pending()
        ids = self.generated_ids[self._num_told :]
        if not ids and not text and not reasoning:
            return ()
        assert self.ttft_s is not None
        delta = TokenDelta(
            self.request.request_id,
            text,
            tuple(ids),
            len(self.generated_ids),
            self.decode_s,
            self.ttft_s,
            tuple(self._pending_logprobs),
            reasoning,
            self._text.num_reasoning_tokens,
            self._reasoning_s,
        )
        self._num_told = len(self.generated_ids)
        self._pending_logprobs = []
        return (delta,)

    # --- the end ---------------------------------------------------------------------------------------

    def finished(self, kv: KVUsage) -> RequestFinished:
        assert self.finish_reason is not None
        timings = RequestTimings(
            queued_s=self._queued_s,
            load_s=self._load_s,
            tokenize_s=self.tokenize_s,
            restore_s=self.restore_s,
            prefill_s=self.prefill_s,
            ttft_s=self.ttft_s,
            decode_s=self.decode_s,
            e2e_s=time.monotonic() - self._arrived + self._load_s,
        )
        return RequestFinished(
            request_id=self.request.request_id,
            finish_reason=self.finish_reason,
            text=self.text,
            # Ids of a stop string spell more than the text.
            token_ids=() if self._text.has_stop_string else (*self._begun_ids, *self.generated_ids),
            counts=self.counts,
            num_generation_tokens=len(self.generated_ids),
            timings=timings,
            decode_tokens_per_second=self.decode_tokens_per_second,
            seed=self.seed,
            kv=kv,
            bytes_read=self.bytes_read,
            miss=self.miss,
            num_preemptions=self.num_preemptions,
            reread_tokens=self.reread_tokens,
            message_ids=self.prompt.message_ids if self.prompt is not None else (),
            reasoning=self._text.finished_reasoning(self._reasoning_s, has_tokens=bool(self.generated_ids)),
            fit=self.fit,
            template=self.prompt.template_use if self.prompt is not None else None,
        )

    def store_sequence(self) -> None:
        """Hand what is not stored yet to the store: every row in the sequence is whole, however the reply ended."""
        if self._stored is not None:
            self._stored.keep_all()

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
        elif self._preparation is not None and not self._preparation.cancel():
            self._preparation.add_done_callback(_close_unused)


def _close_unused(preparation: Future[PreparedReply]) -> None:
    if preparation.exception() is None:
        preparation.result().sampler.close()
