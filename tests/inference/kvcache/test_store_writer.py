import errno
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from inference.kvcache.store_writer import DISK_TOO_SLOW, StoreWriter, disk_refused

FULL_DISK = OSError(errno.ENOSPC, "No space left on device")


class News:
    def __init__(self) -> None:
        self.notices: list[str] = []
        self.num_stored = 0

    def stored(self) -> None:
        self.num_stored += 1


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
def writer(news: News) -> Iterator[StoreWriter]:
    writer = StoreWriter(news.notices.append, news.stored, max_waiting_bytes=100)
    yield writer
    writer.close(5)


def fails() -> bool:
    raise FULL_DISK


def never_done() -> bool:
    pytest.fail("dropped, yet done")


def test_jobs_are_done_in_their_order(writer: StoreWriter) -> None:
    done: list[int] = []

    def job(number: int) -> bool:
        done.append(number)
        return False

    for number in range(50):
        writer.submit(partial(job, number))
    assert writer.flush(5)
    assert done == list(range(50))


def test_more_bytes_than_may_wait_are_refused_and_said_once(writer: StoreWriter, news: News) -> None:
    release = threading.Event()
    assert writer.submit(lambda: release.wait(5), 60)
    assert writer.submit(lambda: True, 40)
    assert not writer.submit(lambda: True, 1)
    assert not writer.submit(lambda: True, 1)
    assert writer.submit(lambda: True)
    assert news.notices == [DISK_TOO_SLOW]
    release.set()
    assert writer.flush(5)
    assert writer.submit(lambda: True, 100)


def test_one_job_may_be_larger_than_all_that_may_wait(writer: StoreWriter) -> None:
    assert writer.submit(lambda: True, 101)


def test_a_full_disk_is_told_once_until_something_is_stored_again(writer: StoreWriter, news: News) -> None:
    for job in (fails, fails, lambda: False, fails, lambda: True, fails):
        writer.submit(job)
    assert writer.flush(5)
    assert news.notices == [disk_refused(FULL_DISK)] * 2
    assert "No space left on device" in news.notices[0]


def test_a_job_that_raises_anything_does_not_end_the_thread(writer: StoreWriter, news: News) -> None:
    writer.submit(lambda: bool(1 // 0))
    writer.submit(lambda: True)
    assert writer.flush(5)
    assert (news.notices, news.num_stored) == ([], 1)


def test_what_was_stored_is_told_after_the_jobs_at_hand(writer: StoreWriter, news: News) -> None:
    gate = threading.Event()
    writer.submit(lambda: gate.wait(5))
    for _ in range(10):
        writer.submit(lambda: True)
    gate.set()
    assert writer.flush(5)
    assert news.num_stored == 1


def test_closing_drops_the_jobs_not_begun_in_time(writer: StoreWriter) -> None:
    release, dropped = threading.Event(), []
    writer.submit(lambda: release.wait(5))
    writer.submit(never_done, abandon=lambda: dropped.append(1))
    writer.close(0.01)
    release.set()
    assert dropped == [1]
    assert not writer.submit(lambda: True)


def test_flushing_gives_up_after_its_time(writer: StoreWriter) -> None:
    release = threading.Event()
    writer.submit(lambda: release.wait(5))
    assert not writer.flush(0.01)
    release.set()
    assert writer.flush(5)
