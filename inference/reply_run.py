"""One request from prompt to last token: restore, prefill, decode; as a generator of events."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from inference.detokenizer import Detokenizer
from inference.events import Event, Phase, PhaseChanged, PrefillProgress, TokenDelta
from inference.kvcache.prefix_cache import PrefixCache
from inference.kvcache.reuse import TokenArray, common_prefix_length, token_array
from inference.llama.context import DecodeAborted
from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.metrics import PromptCounts
from inference.request import EngineError, ErrorCode, FinishReason, GenerationRequest

# A delta goes out at the first token and then at most this often, so that the pipe carries few frames.
_DELTA_INTERVAL_S = 0.025
# Files may vanish or be damaged between look-up and use; after this many misses everything is prefilled.
_MAX_RESTORE_TRIES = 3


class ReplyRun:
    """State of one running request. Counters are raised where the work is handed over, nowhere else."""

    def __init__(
        self, request: GenerationRequest, loaded: LoadedModel, cache: PrefixCache | None, *, arrived: float
    ) -> None:
        """arrived: time.monotonic() when the request came in, moved on by what was spent loading the model."""
        self.request = request
        self._loaded = loaded
        self._context = loaded.context
        self._cache = cache
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
        prompt_ids = self._loaded.prompt_builder.build(self.request).token_ids
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
            yield from self._bring_prefix(prompt_ids)
            yield from self._prefill(prompt_ids)
            yield from self._decode(sampler)
        finally:
            sampler.close()

    def _bring_prefix(self, prompt_ids: list[TokenId]) -> Iterator[Event]:
        """Make the context hold as much of the prompt's beginning as memory or store have."""
        started = time.monotonic()
        tokens = token_array(prompt_ids)
        # The last token is always decoded: its logits are stored nowhere.
        max_hit_length = len(prompt_ids) - 1
        in_memory = self._usable_in_memory(tokens, max_hit_length)
        fingerprint = self._loaded.fingerprint() if self._cache is not None else None
        for _ in range(_MAX_RESTORE_TRIES):
            if self._cache is None or fingerprint is None:
                break
            match = self._cache.match_prefix(
                fingerprint, tokens, self._loaded.reuse_rule, max_hit_length=max_hit_length
            )
            if match is None or match.num_cached_tokens <= in_memory:
                break
            yield PhaseChanged(self.request.request_id, Phase.RESTORING)
            stored_ids = match.checkpoint.token_ids.tolist()
            with self._cache.open_state(match) as state:
                restored = state is not None and self._context.write_state(state, stored_ids)
            if state is not None and not restored:
                in_memory = 0  # the refused state took the place of what was there
                self._cache.reject(match)
            if restored:
                # By the library's own account of what came back, not by the file's.
                in_memory = self._usable_in_memory(tokens, max_hit_length)
                if in_memory and self._context.truncate(in_memory):
                    self.restored_tokens = in_memory
                else:
                    in_memory = 0
                break
        if not self.restored_tokens:
            if in_memory and self._context.truncate(in_memory):
                self.reused_tokens = in_memory
            else:
                self._context.clear()
        self.restore_s = time.monotonic() - started

    def _usable_in_memory(self, tokens: TokenArray, max_hit_length: int) -> int:
        held = token_array(self._context.token_ids)
        return self._loaded.reuse_rule.usable_tokens(
            num_common=common_prefix_length(held, tokens),
            num_held=int(held.size),
            pos_min=self._context.pos_min() or 0,
            max_hit_length=max_hit_length,
        )

    def _prefill(self, prompt_ids: list[TokenId]) -> Iterator[Event]:
        """Chunks end at absolute multiples of n_ubatch and the last token goes alone, so that a cold and a
        restored run of one prompt decode the same batches and give the same logits."""
        started = time.monotonic()
        chunk_size = self._context.params.n_ubatch
        last = len(prompt_ids) - 1
        to_prefill = len(prompt_ids) - self._context.num_tokens
        yield PhaseChanged(self.request.request_id, Phase.PREFILL)
        while (position := self._context.num_tokens) < len(prompt_ids):
            self._stop_if_cancelled()
            end = min((position // chunk_size + 1) * chunk_size, last) if position < last else len(prompt_ids)
            self.prefilled_tokens += end - position
            self._context.decode(prompt_ids[position:end], want_logits=end > last)
            elapsed = time.monotonic() - started
            yield PrefillProgress(
                self.request.request_id, self.prefilled_tokens, to_prefill, self.counts, elapsed
            )
        self.prefill_s = time.monotonic() - started

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
        """Hand the sequence's state to the store: every row in it is whole, however the reply ended."""
        fingerprint = self._loaded.fingerprint() if self._cache is not None else None
        context = self._context
        if self._cache is None or fingerprint is None or not context.token_ids or not self.prefilled_tokens:
            return
        token_ids = np.asarray(context.token_ids, dtype=np.int32)
        self._cache.store(
            fingerprint, token_ids, context.state_pos_min(), context.read_state(), self._loaded.reuse_rule
        )
