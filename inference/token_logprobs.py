"""How likely the model found the token that was chosen, and which others it had in mind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference.messages import TokenId


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of the model's own probabilities, before any setting of the sampler changed them.

    token_id, logprob: of the chosen token. top: the likeliest tokens, the likeliest first.
    """

    token_id: TokenId
    logprob: float
    top: tuple[tuple[TokenId, float], ...]


def token_logprobs(logits: npt.NDArray[np.float32], chosen: TokenId, num_top: int) -> TokenLogprobs:
    """logits: shape (vocabulary size,), not changed. num_top: at least 1; of equal ones the lower id comes first."""
    num_top = min(num_top, logits.size)
    peak = logits.max()
    log_sum = peak + np.log(np.exp(logits - peak).sum(dtype=np.float32))
    # Those above the num_top-th largest value, and of its equals the first: a partition alone picks any of them.
    least = np.partition(logits, -num_top)[-num_top]
    candidates = np.flatnonzero(logits >= least)
    best = candidates[np.argsort(-logits[candidates], kind="stable")][:num_top]
    top = tuple((TokenId(int(token)), float(logits[token] - log_sum)) for token in best)
    return TokenLogprobs(chosen, float(logits[chosen] - log_sum), top)
