"""The sampler chain: llama.cpp's own samplers, put together from SamplingParams."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from types import ModuleType

from inference.messages import TokenId
from inference.sampling_params import SamplingParams

# llama.cpp's customary window of the repeat penalty, in tokens.
_PENALTY_WINDOW = 64


class Sampler:
    """Chooses tokens for one reply. `seed` is the seed really used."""

    def __init__(self, llama: ModuleType, params: SamplingParams, prompt_ids: Sequence[TokenId]) -> None:
        self._llama = llama
        self.seed = secrets.randbelow(0xFFFFFFFF) if params.seed is None else params.seed
        self._chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        if params.repeat_penalty != 1.0:
            self._add(llama.llama_sampler_init_penalties(_PENALTY_WINDOW, params.repeat_penalty, 0.0, 0.0))
        if params.temperature == 0.0:
            self._add(llama.llama_sampler_init_greedy())
        else:
            if params.top_k > 0:
                self._add(llama.llama_sampler_init_top_k(params.top_k))
            if params.top_p < 1.0:
                self._add(llama.llama_sampler_init_top_p(params.top_p, 1))
            if params.min_p > 0.0:
                self._add(llama.llama_sampler_init_min_p(params.min_p, 1))
            self._add(llama.llama_sampler_init_temp(params.temperature))
            self._add(llama.llama_sampler_init_dist(self.seed))
        # The penalty looks at prompt tokens too, whether their KV rows were prefilled or restored.
        for token in prompt_ids[-_PENALTY_WINDOW:]:
            llama.llama_sampler_accept(self._chain, token)

    def _add(self, sampler: object) -> None:
        self._llama.llama_sampler_chain_add(self._chain, sampler)

    def sample(self, context_handle: int, index: int = -1) -> TokenId:
        """The next token from the logits of the last batch's token at index (-1: its last); the chain takes note of it."""
        return TokenId(self._llama.llama_sampler_sample(self._chain, context_handle, index))

    def close(self) -> None:
        if self._chain is not None:
            self._llama.llama_sampler_free(self._chain)
            self._chain = None
