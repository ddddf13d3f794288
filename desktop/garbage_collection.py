"""Garbage is collected on the main thread only: a Qt object that dies on another one takes the process with it."""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, Qt, QTimer

CHECK_INTERVAL_MS = 5000


class MainThreadGarbageCollection(QObject):
    """Python collects cycles on whichever thread allocates; a QTimer destroyed there still fires and crashes.

    So the automatic collection is off from start() on, and a slow timer does what its thresholds ask for.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setInterval(CHECK_INTERVAL_MS)
        self._timer.setTimerType(Qt.TimerType.VeryCoarseTimer)
        self._timer.timeout.connect(self.collect_if_due)

    def start(self) -> None:
        gc.disable()
        self._timer.start()

    def stop(self) -> None:
        """Collect what is there, and leave it to Python again."""
        self._timer.stop()
        gc.collect()
        gc.enable()

    def collect_if_due(self) -> None:
        """The oldest generation whose threshold is passed, and with it the younger ones."""
        for generation in (2, 1, 0):
            if gc.get_count()[generation] > gc.get_threshold()[generation]:
                gc.collect(generation)
                return
