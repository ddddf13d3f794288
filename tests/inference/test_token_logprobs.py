"""Log-probabilities against the definition in double precision."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inference.messages import TokenId
from inference.token_logprobs import token_logprobs


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=30), st.integers(1, 40), st.data())
def test_they_are_the_log_softmax_of_the_logits(
    values: list[float], num_top: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(0, len(values) - 1))
    logits = np.array(values, np.float32)
    told = token_logprobs(logits, TokenId(chosen), num_top)
    log_sum = math.log(math.fsum(math.exp(value - max(values)) for value in values)) + max(values)
    expected = sorted(range(len(values)), key=lambda token: (-values[token], token))[:num_top]
    assert [token for token, _ in told.top] == expected
    for token, logprob in (*told.top, (told.token_id, told.logprob)):
        assert math.isclose(logprob, values[token] - log_sum, abs_tol=1e-3)
    assert (logits == np.array(values, np.float32)).all()


def test_banned_tokens_have_no_probability() -> None:
    told = token_logprobs(np.array([0.0, -np.inf], np.float32), TokenId(0), 2)
    assert told.top == ((TokenId(0), 0.0), (TokenId(1), -math.inf))
