"""What the worker tells of its inference thread: nothing while that rests, and no hang while a disk is read."""

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.activity import Activity
from inference.events import Heartbeat
from inference.process import heartbeat

StartBeats = Callable[[Activity], "queue.SimpleQueue[Heartbeat]"]


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Iterator[StartBeats]:
    """Heartbeats as they come, a hundred a second."""
    monkeypatch.setattr(heartbeat, "INTERVAL_S", 0.01)
    started: list[Activity] = []

    def start(activity: Activity) -> "queue.SimpleQueue[Heartbeat]":
        told: queue.SimpleQueue[Heartbeat] = queue.SimpleQueue()
        heartbeat.start_heartbeat(activity, told.put)
        started.append(activity)
        return told

    yield start
    for activity in started:
        # A heartbeat thread ends with its process only.
        activity.rest()


def next_beat(told: "queue.SimpleQueue[Heartbeat]") -> Heartbeat:
    return told.get(timeout=30)


def test_a_thread_that_does_not_get_on_is_told_with_a_growing_time(
    beats: StartBeats,
) -> None:
    told = beats(Activity())
    times = [next_beat(told).stuck_s for _ in range(5)]
    assert times == sorted(times)
    assert times[-1] > times[0] > 0.0


def test_each_advance_begins_anew(beats: StartBeats) -> None:
    activity = Activity()
    told = beats(activity)
    while next_beat(told).stuck_s == 0.0:
        pass
    activity.advance()
    while next_beat(told).stuck_s > 0.0:
        pass


def test_reading_from_a_disk_is_getting_on(tmp_path: Path) -> None:
    if not Path("/proc/self/io").exists():
        pytest.skip("the system does not tell what a process reads")
    (tmp_path / "weights").write_bytes(bytes(2**20))
    reads = heartbeat.DiskReads()
    assert not reads.went_on()
    (tmp_path / "weights").read_bytes()
    assert reads.went_on()
    assert not reads.went_on()


def test_nothing_is_told_while_the_thread_rests(
    beats: StartBeats,
) -> None:
    activity = Activity()
    told = beats(activity)
    next_beat(told)
    with activity.resting():
        time.sleep(0.1)
        while not told.empty():
            told.get()
        time.sleep(0.1)
        assert told.empty()
    next_beat(told)
