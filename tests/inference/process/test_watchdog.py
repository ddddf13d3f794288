"""When silence or a long step is a hang, and when the computer only slept or is slow."""

from hypothesis import given
from hypothesis import strategies as st

from inference.events import Heartbeat
from inference.process.watchdog import TICK_S, Patience, Watchdog
from inference.request import RequestId

PATIENCE = Patience(start_s=50.0, silence_s=20.0, stuck_s=60.0, step_factor=10.0, stop_s=5.0)


def ticks(watchdog: Watchdog, seconds: float, start: float = 0.0) -> list[float]:
    """What was found hanging in that time, tick by tick."""
    found = [watchdog.tick(start + number * TICK_S) for number in range(int(seconds / TICK_S) + 1)]
    return [stuck_s for stuck_s in found if stuck_s is not None]


def watched() -> Watchdog:
    watchdog = Watchdog(PATIENCE)
    watchdog.begin()
    watchdog.heard()
    return watchdog


def test_silence_is_a_hang_once_it_is_too_long() -> None:
    assert ticks(watched(), 20) == []
    assert ticks(watched(), 21) == [21.0]


def test_a_worker_that_has_not_said_anything_yet_gets_time_to_start() -> None:
    watchdog = Watchdog(PATIENCE)
    watchdog.begin()
    assert ticks(watchdog, 50) == []
    assert watchdog.tick(51.0) == 51.0


def test_signs_of_life_without_progress_are_a_hang() -> None:
    watchdog = watched()
    watchdog.heard(Heartbeat(60.0, 0.0))
    assert watchdog.tick(0.0) is None
    watchdog.heard(Heartbeat(60.5, 0.0))
    assert watchdog.tick(1.0) == 60.5


def test_a_step_of_a_model_that_is_slow_anyway_is_none() -> None:
    watchdog = watched()
    watchdog.heard(Heartbeat(299.0, 30.0))
    assert watchdog.tick(0.0) is None
    watchdog.heard(Heartbeat(301.0, 30.0))
    assert watchdog.tick(1.0) == 301.0


@given(st.lists(st.floats(60, 1e6), min_size=1, max_size=8))
def test_a_computer_that_slept_hangs_nothing(sleeps_s: list[float]) -> None:
    watchdog, now = watched(), 0.0
    watchdog.tick(now)
    for slept_s in sleeps_s:
        now += slept_s
        assert watchdog.tick(now) is None


def test_time_in_which_nothing_was_owed_does_not_count() -> None:
    watchdog = watched()
    ticks(watchdog, 15)
    watchdog.begin()
    assert ticks(watchdog, 15, start=100.0) == []


def test_a_stop_without_effect_is_told_once() -> None:
    watchdog, late, ended = watched(), RequestId("late"), RequestId("ended")
    watchdog.stop_asked(late)
    watchdog.stop_asked(ended)
    watchdog.stop_asked(late)
    ticks(watchdog, 5)
    assert watchdog.take_unanswered_stops() == ()
    watchdog.ended(ended)
    watchdog.tick(6.0)
    assert watchdog.take_unanswered_stops() == (late,)
    ticks(watchdog, 10, start=7.0)
    assert watchdog.take_unanswered_stops() == ()
