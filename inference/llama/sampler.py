"""The sampler chain: llama.cpp's own samplers, put together from SamplingParams."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.llama.grammar import Candidates, SamplingRefused, reply_grammar
from inference.llama.model import Model
from inference.messages import TokenId
from inference.sampling_defaults import NEUTRAL, SamplingDefaults
from inference.sampling_params import MAX_SEED, SamplingParams
from inference.token_logprobs import TokenLogprobs, token_logprobs

# Below it the likeliest token is chosen in any case, and logits divided by it leave the range of a float32.
_GREEDY_BELOW = 1e-3
# Every sampler leaves at least this many candidates.
_MIN_KEEP = 1
# So many of the likeliest tokens mirostat 1 estimates its exponent from (llama.cpp's and the paper's number).
_MIROSTAT_TOKENS = 100
# Candidates with probability 0 (banned ones; those far below the first) make typical and mirostat 1 compute 0 * inf.
_NOT_ZERO = 1e-30


class Sampler:
    """Chooses tokens for one reply. `seed` is the seed really used; `logprobs` tells of the last token chosen, if
    params ask for it."""

    def __init__(
        self,
        llama: ModuleType,
        params: SamplingParams,
        prompt_ids: Sequence[TokenId],
        model: Model,
        reply_ids: Sequence[TokenId] = (),
    ) -> None:
        """What params leave open is neutral. reply_ids: the end of the prompt that is the beginning of this reply; the
        grammar goes on behind it. Raises SamplingRefused (an EngineError)."""
        self._llama = llama
        self._params = params
        self._vocab_handle: int = llama.llama_model_get_vocab(model.handle)
        self._n_vocab = model.vocab.size
        self.seed = secrets.randbelow(MAX_SEED + 1) if params.seed is None else params.seed
        self.logprobs: TokenLogprobs | None = None
        self._grammar = None
        self._is_greedy_alone = False
        self._biases: dict[int, float] = {}
        self._logits_at: tuple[int, npt.NDArray[np.float32]] | None = None
        chain_params = llama.llama_sampler_chain_default_params()
        self._chain = llama.llama_sampler_chain_init(chain_params)
        try:
            self._fill_chain(NEUTRAL.under(params))
            if params.grammar is not None or params.json_schema is not None:
                self._grammar = reply_grammar(llama, self._vocab_handle, params)
                self._candidates = Candidates(llama, self._n_vocab)
                self._go_on_behind(reply_ids)
        except BaseException:
            self.close()
            raise
        # The penalties look at prompt tokens too, whether their KV rows were prefilled or restored.
        for token in prompt_ids[-self._window :] if self._window else ():
            llama.llama_sampler_accept(self._chain, token)

    def _fill_chain(self, values: SamplingDefaults) -> None:
        """In llama.cpp's order (common_params_sampling::samplers)."""
        llama, params = self._llama, self._params
        self._window = 0
        self._add_biases()
        self._add_penalties(values)
        if values.temperature < _GREEDY_BELOW:
            # Where biases only lower some tokens, the likeliest of all is chosen unless it is one of them.
            self._is_greedy_alone = not self._window and all(bias <= 0 for bias in self._biases.values())
            self._add(llama.llama_sampler_init_greedy())
        elif values.mirostat:
            self._add(llama.llama_sampler_init_temp(values.temperature))
            self._add_mirostat(values)
        else:
            if values.top_k > 0:
                self._add(llama.llama_sampler_init_top_k(values.top_k))
            if params.typical_p < 1.0:
                self._add(llama.llama_sampler_init_min_p(_NOT_ZERO, _MIN_KEEP))
                self._add(llama.llama_sampler_init_typical(params.typical_p, _MIN_KEEP))
            if values.top_p < 1.0:
                self._add(llama.llama_sampler_init_top_p(values.top_p, _MIN_KEEP))
            if values.min_p > 0.0:
                self._add(llama.llama_sampler_init_min_p(values.min_p, _MIN_KEEP))
            if values.xtc_probability > 0.0:
                self._add(
                    llama.llama_sampler_init_xtc(
                        values.xtc_probability, values.xtc_threshold, _MIN_KEEP, self.seed
                    )
                )
            self._add(llama.llama_sampler_init_temp(values.temperature))
            self._add(llama.llama_sampler_init_dist(self.seed))

    def _add(self, sampler: object) -> None:
        self._llama.llama_sampler_chain_add(self._chain, sampler)

    def _add_biases(self) -> None:
        llama, biases, n_vocab = self._llama, list(self._params.logit_bias), self._n_vocab
        if self._params.ignore_eos:
            is_end, handle = llama.llama_vocab_is_eog, self._vocab_handle
            biases += [(token, -np.inf) for token in range(n_vocab) if is_end(handle, token)]
        if not biases:
            return
        unknown = next((token for token, _ in biases if token >= n_vocab), None)
        if unknown is not None:
            raise SamplingRefused(f"logit_bias names token {unknown}; this model has {n_vocab} tokens")
        self._biases = dict(biases)
        native = (llama.llama_logit_bias * len(biases))(*biases)
        self._add(llama.llama_sampler_init_logit_bias(n_vocab, len(biases), native))

    def _add_penalties(self, values: SamplingDefaults) -> None:
        llama, params = self._llama, self._params
        penalties = values.repeat_penalty, params.frequency_penalty, params.presence_penalty
        if penalties != (1.0, 0.0, 0.0) and values.penalty_last_n:
            self._add(llama.llama_sampler_init_penalties(self._n_vocab, values.penalty_last_n, *penalties))
            self._window = values.penalty_last_n
        if params.dry_multiplier > 0.0 and params.dry_last_n:
            breakers = [text.encode() for text in params.dry_sequence_breakers]
            self._add(
                llama.llama_sampler_init_dry(
                    self._vocab_handle,
                    params.dry_multiplier,
                    params.dry_base,
                    params.dry_allowed_length,
                    params.dry_last_n,
                    (ctypes.c_char_p * len(breakers))(*breakers),
                    len(breakers),
                )
            )
            self._window = max(self._window, params.dry_last_n)

    def _add_mirostat(self, values: SamplingDefaults) -> None:
        llama, tau, eta = self._llama, values.mirostat_tau, values.mirostat_eta
        if values.mirostat == 2:
            self._add(llama.llama_sampler_init_mirostat_v2(self.seed, tau, eta))
            return
        self._add(llama.llama_sampler_init_min_p(_NOT_ZERO, _MIN_KEEP))
        self._add(llama.llama_sampler_init_mirostat(self._n_vocab, self.seed, tau, eta, _MIROSTAT_TOKENS))

    def _go_on_behind(self, reply_ids: Sequence[TokenId]) -> None:
        assert self._grammar is not None
        for token in reply_ids:
            if not self._grammar.allows(token):
                raise SamplingRefused(
                    "the reply so far does not follow the grammar, so it cannot be continued"
                )
            self._grammar.accept(token)

    def sample(self, context_handle: int, index: int = -1, *, use_grammar: bool = True) -> TokenId:
        """The next token from the logits of the last batch's token at index (-1: its last); the chain takes note of it.

        use_grammar False: what is chosen is no part of what the grammar describes.
        Where the grammar is complete and allows nothing else, that is an end token, also with ignore_eos. Raises
        SamplingRefused where no token of this vocabulary fits into the grammar.
        """
        if self._grammar is None or not use_grammar:
            token = self._sample_freely(context_handle, index)
        else:
            token = self._sample_by_grammar(self._logits(context_handle, index))
        if self._params.top_logprobs:
            self.logprobs = token_logprobs(
                self._logits(context_handle, index), token, self._params.top_logprobs
            )
        return token

    def _sample_freely(self, context_handle: int, index: int) -> TokenId:
        if self._is_greedy_alone:
            # The first of the largest, as the chain would choose it, which copies the whole vocabulary for that.
            token = TokenId(int(self._logits(context_handle, index).argmax()))
            if token not in self._biases:
                return token
        return TokenId(self._llama.llama_sampler_sample(self._chain, context_handle, index))

    def _sample_by_grammar(self, logits: npt.NDArray[np.float32]) -> TokenId:
        """As llama.cpp's common_sampler_sample: the chain's choice if it fits, else one among what fits.

        Matching one token is quick, matching all takes some milliseconds, and most of what a model writes fits.
        """
        assert self._grammar is not None
        llama, candidates = self._llama, self._candidates
        llama.llama_sampler_apply(self._chain, candidates.fill(logits))
        token = candidates.selected
        if not self._grammar.allows(token):
            fitting = candidates.fill(logits)
            self._grammar.restrict(fitting)
            if not candidates.any_possible:
                raise SamplingRefused("no token of this model fits next into the grammar: change the grammar")
            likeliest = candidates.likeliest
            llama.llama_sampler_apply(self._chain, fitting)
            token = candidates.selected
            if not self._grammar.allows(token):
                # All that fits was ruled out in the chain: an end token by ignore_eos.
                token = likeliest
        self._grammar.accept(token)
        llama.llama_sampler_accept(self._chain, token)
        return token

    def _logits(self, context_handle: int, index: int) -> npt.NDArray[np.float32]:
        """The model's own, shape (vocabulary size,); the library's memory, valid until the next decode."""
        pointer: Any = self._llama.llama_get_logits_ith(context_handle, index)
        address = ctypes.addressof(pointer.contents)
        if self._logits_at is None or self._logits_at[0] != address:
            # Nearly always where they were at the last token.
            self._logits_at = address, np.ctypeslib.as_array(pointer, shape=(self._n_vocab,))
        return self._logits_at[1]

    def close(self) -> None:
        if self._grammar is not None:
            self._grammar.close()
            self._grammar = None
        if self._chain is not None:
            self._llama.llama_sampler_free(self._chain)
            self._chain = None
