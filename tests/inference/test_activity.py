"""What is expected of a step, and what counts as getting on."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from inference.activity import Activity, StepTimes
from inference.llama.sequence import BatchPart
from inference.loaded_model import LoadedModel
from inference.messages import TokenId


def test_a_first_step_has_time_to_read_the_model_from_a_slow_disk() -> None:
    size_bytes = 40_000_000_000
    assert StepTimes(70_000_000_000, size_bytes).expected_s(1) >= size_bytes / 100e6


def test_nothing_is_expected_of_a_step_that_decodes_nothing() -> None:
    assert StepTimes(10**9, 10**9).expected_s(0) == 0.0


@given(st.lists(st.floats(1e-4, 1e3), min_size=1, max_size=40))
def test_a_step_is_expected_to_take_what_the_slowest_of_the_last_ones_did(seconds: list[float]) -> None:
    times = StepTimes(10**9, 10**9)
    for step_s in seconds:
        times.observe(1, step_s)
        times.observe(512, step_s * 10)
    assert times.expected_s(1) == max(seconds[-16:])
    assert abs(times.expected_s(256) - max(seconds[-16:]) * 5) < 1e-6


def test_replies_measured_so_far_tell_nothing_of_a_long_prompt() -> None:
    times = StepTimes(10**9, 10**9)
    times.observe(1, 0.01)
    assert times.expected_s(512) > 100


def test_a_step_under_way_is_judged_by_what_it_decodes(
    load: Callable[..., LoadedModel], tiny_paths: dict[str, Path]
) -> None:
    context = load(tiny_paths["mha"], n_ctx=128).context
    activity = Activity()
    token = (TokenId(5),)
    with activity.step(context):
        assert activity.expected_s == 0.0
        context.decode([BatchPart(context.sequences[0], token, want_logits=True)])
        assert activity.expected_s > 0.0
    assert activity.expected_s == 0.0


def test_each_step_is_an_advance_and_resting_is_not_busy(
    load: Callable[..., LoadedModel], tiny_paths: dict[str, Path]
) -> None:
    context = load(tiny_paths["mha"], n_ctx=128).context
    activity = Activity()
    before = activity.num_advances
    with activity.step(context):
        pass
    assert activity.num_advances > before
    assert activity.is_busy
    with activity.resting():
        assert not activity.is_busy
    assert activity.is_busy
