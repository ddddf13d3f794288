import math

import pytest

from inference.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", 1.5),
        ("repeat_penalty", 0.0),
        ("seed", -1),
        ("seed", 0xFFFFFFFF),
        ("max_tokens", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        SamplingParams(**{name: value})


def test_untouched_settings_leave_the_repeat_penalty_off() -> None:
    # Reported as ollama PR #17679: a default of 1.1 distorts code and JSON.
    assert SamplingParams().repeat_penalty == 1.0
