from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QObject

from desktop.garbage_collection import MainThreadGarbageCollection


class Ring(QObject):
    """Garbage that only the collector can find, and that tells where it dies."""

    died_on: list[int] = []  # noqa: RUF012 - reset by each test

    def __init__(self) -> None:
        super().__init__()
        self.itself = self

    def __del__(self) -> None:
        self.died_on.append(threading.get_ident())


@pytest.fixture
def collection(qapp: object) -> Iterator[MainThreadGarbageCollection]:
    Ring.died_on.clear()
    gc.collect()
    collection = MainThreadGarbageCollection()
    collection.start()
    yield collection
    collection.stop()


def allocate_on_another_thread() -> None:
    thread = threading.Thread(target=lambda: [[] for _ in range(200_000)])
    thread.start()
    thread.join()


def test_another_thread_never_destroys_qt_objects(collection: MainThreadGarbageCollection) -> None:
    Ring()
    allocate_on_another_thread()
    assert Ring.died_on == []
    collection.stop()
    assert Ring.died_on == [threading.get_ident()]


def test_garbage_is_collected_once_enough_has_gathered(collection: MainThreadGarbageCollection) -> None:
    Ring()
    kept = [[] for _ in range(gc.get_threshold()[0] + 100)]
    collection.collect_if_due()
    assert Ring.died_on == [threading.get_ident()]
    assert kept


def test_nothing_is_done_while_there_is_nothing_to_do(collection: MainThreadGarbageCollection) -> None:
    gc.collect()
    Ring()
    collection.collect_if_due()
    assert Ring.died_on == []
