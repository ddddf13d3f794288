"""A grammar that a reply follows: llama.cpp's matcher, kept outside the sampler chain.

Inside the chain it would be told prompt tokens, and end tokens before it is complete: both abort the process. So does
any token that does not fit, which is why accept() is only for tokens that allows() has let pass.
"""

from __future__ import annotations

import ctypes
import math
import time
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.gbnf import InvalidGrammar, check_gbnf
from inference.llama.json_schema_grammar import json_schema_grammar
from inference.messages import TokenId
from inference.request import EngineError, ErrorCode
from inference.sampling_params import SamplingParams

# The matcher keeps every way to read the text so far. An ambiguous grammar doubles them at each character; the step
# that takes this long is stopped at, before the one that fills the memory.
_MAX_STEP_S = 2.0


class SamplingRefused(EngineError):
    """A request whose sampling cannot be done with this model; `str()` is one line for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SAMPLING_REFUSED, message)


class Candidates:
    """Tokens with their logits, in the library's layout; one step's worth, filled without a loop over the vocabulary."""

    def __init__(self, llama: ModuleType, size: int) -> None:
        self._ids = np.arange(size, dtype=np.int32)
        self._entries = np.zeros(size, dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._array = llama.llama_token_data_array()
        self._data = ctypes.cast(self._entries.ctypes.data, llama.llama_token_data_p)

    def fill(self, logits: npt.NDArray[np.float32]) -> Any:
        """All tokens anew; returns what the library's samplers take."""
        self._entries["id"] = self._ids
        self._entries["logit"] = logits
        return self._start()

    def fill_one(self, token: TokenId) -> Any:
        self._entries[0] = (token, 1.0, 0.0)
        return self._start()

    def _start(self) -> Any:
        # Samplers shorten the array and move its beginning.
        array = self._array
        array.data, array.size, array.selected, array.sorted = self._data, self._entries.size, -1, False
        return ctypes.byref(array)

    @property
    def any_possible(self) -> bool:
        return bool((self._entries["logit"] > -math.inf).any())

    @property
    def likeliest(self) -> TokenId:
        return TokenId(int(self._entries["id"][self._entries["logit"].argmax()]))

    @property
    def selected(self) -> TokenId:
        array = self._array
        if not 0 <= array.selected < array.size:
            raise EngineError(
                ErrorCode.DECODE_FAILED, "the sampler chose no token: change the sampling settings"
            )
        return TokenId(array.data[array.selected].id)


class Grammar:
    """Sees the tokens of one reply."""

    def __init__(self, llama: ModuleType, vocab_handle: int, gbnf: str) -> None:
        """Raises SamplingRefused."""
        try:
            check_gbnf(gbnf)
        except InvalidGrammar as error:
            raise SamplingRefused(f"the grammar cannot be used: {error}") from None
        self._llama = llama
        self._vocab_handle = vocab_handle
        self._one = Candidates(llama, 1)
        self._sampler = llama.llama_sampler_init_grammar(vocab_handle, gbnf.encode(), b"root")
        if not self._sampler:
            raise SamplingRefused(
                "the grammar cannot be used: llama.cpp refused it, most likely because something is repeated that may "
                "be empty, or repetitions stand inside repetitions (the log has more)"
            )

    def allows(self, token: TokenId) -> bool:
        self.restrict(self._one.fill_one(token))
        return self._one.any_possible

    def restrict(self, candidates: Any) -> None:
        """Give every token that does not fit next a logit of minus infinity."""
        started = time.monotonic()
        self._llama.llama_sampler_apply(self._sampler, candidates)
        self._check_time(started)

    def accept(self, token: TokenId) -> None:
        """Go on behind a token that allows() let pass; an end token leaves the grammar as it is."""
        if not self._llama.llama_vocab_is_eog(self._vocab_handle, token):
            started = time.monotonic()
            self._llama.llama_sampler_accept(self._sampler, token)
            self._check_time(started)

    def _check_time(self, started: float) -> None:
        if time.monotonic() - started > _MAX_STEP_S:
            raise SamplingRefused("the grammar can be read in too many ways at once: make it less ambiguous")

    def close(self) -> None:
        if self._sampler is not None:
            self._llama.llama_sampler_free(self._sampler)
            self._sampler = None


def reply_grammar(llama: ModuleType, vocab_handle: int, params: SamplingParams) -> Grammar | None:
    """The grammar or the JSON schema that params ask for; None: neither. Raises SamplingRefused."""
    if params.json_schema is not None:
        try:
            return Grammar(llama, vocab_handle, json_schema_grammar(params.json_schema))
        except InvalidGrammar as error:
            raise SamplingRefused(str(error)) from None
    return None if params.grammar is None else Grammar(llama, vocab_handle, params.grammar)
