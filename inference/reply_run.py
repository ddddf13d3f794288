"""One request from prompt to last token: restore, prefill, decode; as a generator of events."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from inference.detokenizer import Detokenizer
from inference.events import Event, Phase, PhaseChanged, PrefillProgress, TokenDelta
from inference.kvcache.block import CheckpointKind
from inference.kvcache.block_store import BlockStore
from inference.llama.context import DecodeAborted
from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.metrics import PromptCounts
from inference.miss import Miss, explain_miss
from inference.prompt import Prompt
from inference.request import EngineError, ErrorCode, FinishReason, GenerationRequest
from inference.stored_sequence import StoredSequence

# A delta goes out at the first token and then at most this often, so that the pipe carries few frames.
_DELTA_INTERVAL_S = 0.025


class ReplyRun:
    """State of one running request. Counters are raised where the work is handed over, nowhere else."""

    def __init__(
        self, request: GenerationRequest, loaded: LoadedModel, store: BlockStore | None, *, arrived: float
    ) -> None:
        """arrived: time.monotonic() when the request came in, moved on by what was spent loading the model."""
        self.request = request
        self._loaded = loaded
        self._context = loaded.context
        self._store = None if request.is_private else store
        self._sequence = StoredSequence(loaded, self._store, request.owner)
        self.bytes_read = 0
        self.miss: Miss | None = None
        self._arrived = arrived
        self.is_cancelled = False
        self.finish_reason: FinishReason | None = None
        self.num_prompt_tokens = 0
        self.reused_tokens = 0
        self.restored_tokens = 0
        self.prefilled_tokens = 0
        self.generated_ids: list[TokenId] = []
        self.detokenizer = Detokenizer()
        self.tokenize_s = 0.0
        self.restore_s = 0.0
        self.prefill_s = 0.0
        self.ttft_s: float | None = None
        self.decode_s = 0.0
        self.seed = 0

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

    def cancel(self) -> None:
        """From any thread: end within one batch."""
        self.is_cancelled = True
        self._context.abort_flag.set()

    def run(self) -> Iterator[Event]:
        """Events up to, not including, the request's end; finish_reason is set then. Raises EngineError."""
        self._context.abort_flag.clear()
        if self.is_cancelled:
            self.finish_reason = FinishReason.CANCELLED
            return
        try:
            yield from self._run()
        except DecodeAborted:
            self.finish_reason = FinishReason.CANCELLED
        finally:
            self._context.abort_flag.clear()

    def _run(self) -> Iterator[Event]:
        started = time.monotonic()
        prompt = self._loaded.prompt_builder.build(self.request)
        prompt_ids = prompt.token_ids
        self.num_prompt_tokens = len(prompt_ids)
        self.tokenize_s = time.monotonic() - started
        if len(prompt_ids) > self._context.n_ctx:
            raise EngineError(
                ErrorCode.PROMPT_TOO_LONG,
                f"the prompt is {len(prompt_ids):,} tokens, the context holds {self._context.n_ctx:,}: "
                "shorten it, start a new chat, or choose a larger context",
            )
        sampler = Sampler(self._loaded.model.llama, self.request.sampling, prompt_ids)
        self.seed = sampler.seed
        try:
            yield from self._bring_prefix(prompt)
            yield from self._prefill(prompt)
            yield from self._decode(sampler)
        finally:
            sampler.close()

    def _bring_prefix(self, prompt: Prompt) -> Iterator[Event]:
        """Make the context hold as much of the prompt's beginning as memory or store have."""
        if self._store is not None:
            yield PhaseChanged(self.request.request_id, Phase.RESTORING)
        started = time.monotonic()
        read_before = self._store.bytes_read if self._store is not None else 0
        brought = self._sequence.bring(prompt)
        self.reused_tokens, self.restored_tokens = brought.reused_tokens, brought.restored_tokens
        if self._store is not None:
            self.bytes_read = self._store.bytes_read - read_before
        usable = brought.reused_tokens + brought.restored_tokens
        self.miss = explain_miss(
            brought.miss,
            prompt,
            self._loaded.model.vocab,
            num_stored=brought.num_stored,
            num_usable=usable,
            has_checkpoints=self._sequence.has_checkpoints,
        )
        self.restore_s = time.monotonic() - started

    def _prefill(self, prompt: Prompt) -> Iterator[Event]:
        """Chunks end at absolute multiples of n_ubatch and the last token goes alone, so that a cold and a
        restored run of one prompt decode the same batches and give the same logits. Where state must be copied
        at exact positions, chunks end there too."""
        started = time.monotonic()
        prompt_ids, last = prompt.token_ids, len(prompt.token_ids) - 1
        stops = {position: kind for position, kind in self._checkpoint_stops(prompt) if position <= last}
        to_prefill = len(prompt_ids) - self._context.num_tokens
        yield PhaseChanged(self.request.request_id, Phase.PREFILL)
        while (position := self._context.num_tokens) < len(prompt_ids):
            self._stop_if_cancelled()
            end = self._chunk_end(position, last, stops)
            self.prefilled_tokens += end - position
            self._context.decode(prompt_ids[position:end], want_logits=end > last)
            if end in stops:
                self._sequence.keep_checkpoint(stops[end])
            if end <= last:
                self._sequence.keep_one_block()
            elapsed = time.monotonic() - started
            yield PrefillProgress(
                self.request.request_id, self.prefilled_tokens, to_prefill, self.counts, elapsed
            )
        self.prefill_s = time.monotonic() - started
        self._sequence.observe_prefill(self.prefilled_tokens, self.prefill_s)

    def _checkpoint_stops(self, prompt: Prompt) -> Iterator[tuple[int, CheckpointKind]]:
        if self._sequence.has_checkpoints:
            if prompt.system_end:
                yield prompt.system_end, "system"
            if prompt.user_end:
                yield prompt.user_end, "user"

    def _chunk_end(self, position: int, last: int, stops: Collection[int]) -> int:
        if position == last:
            return last + 1
        size = self._context.params.n_ubatch
        return min((position // size + 1) * size, last, *(stop for stop in stops if stop > position))

    def _decode(self, sampler: Sampler) -> Iterator[Event]:
        request_id, vocab, max_tokens = (
            self.request.request_id,
            self._loaded.model.vocab,
            self.request.sampling.max_tokens,
        )
        yield PhaseChanged(request_id, Phase.DECODE)
        pending_text, pending_ids, last_delta = "", list[TokenId](), 0.0
        first_token_at = 0.0
        try:
            while self.finish_reason is None:
                token = sampler.sample(self._context.handle)
                now = time.monotonic()
                if self.ttft_s is None:
                    self.ttft_s, first_token_at = now - self._arrived, now
                self.decode_s = now - first_token_at
                if vocab.ends_generation(token):
                    self.finish_reason = FinishReason.STOP
                    break
                self.generated_ids.append(token)
                pending_ids.append(token)
                pending_text += self.detokenizer.append(vocab.piece(token))
                if now - last_delta >= _DELTA_INTERVAL_S:
                    yield self._delta(pending_text, pending_ids)
                    pending_text, pending_ids, last_delta = "", [], now
                if max_tokens is not None and len(self.generated_ids) >= max_tokens:
                    self.finish_reason = FinishReason.LENGTH
                elif self._context.num_tokens >= self._context.n_ctx:
                    self.finish_reason = FinishReason.CONTEXT
                else:
                    self._stop_if_cancelled()
                    self._context.decode([token], want_logits=True)
                    self._sequence.keep_one_block()
        except DecodeAborted:
            self.finish_reason = FinishReason.CANCELLED
        if pending_ids:
            yield self._delta(pending_text, pending_ids)

    def _delta(self, text: str, token_ids: list[TokenId]) -> TokenDelta:
        assert self.ttft_s is not None
        return TokenDelta(
            self.request.request_id,
            text,
            tuple(token_ids),
            len(self.generated_ids),
            self.decode_s,
            self.ttft_s,
        )

    def _stop_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise DecodeAborted

    def store_sequence(self) -> None:
        """Hand what is not stored yet to the store: every row in the sequence is whole, however the reply ended."""
        self._sequence.keep_all()
