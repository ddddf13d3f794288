"""Faults of the Qt binding that would end the process of a user in the middle of a chat."""

import sys
from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint


def references_lost(call: Callable[[], object], value: object) -> int:
    before = sys.getrefcount(value)
    for _ in range(1000):
        call()
    return before - sys.getrefcount(value)


def test_calls_into_qt_lose_no_references() -> None:
    # PySide6 6.12.0 on Python 3.11: each call that returns nothing took a reference from None (emitting a signal
    # one from True), until the interpreter aborted after some minutes of painting.
    thing, point = QObject(), QPoint()
    assert references_lost(lambda: thing.setObjectName("x"), None) < 100
    assert references_lost(lambda: point.setX(3), None) < 100
    assert references_lost(lambda: thing.objectNameChanged.emit("x"), True) < 100
    assert references_lost(lambda: thing.blockSignals(False), False) < 100
