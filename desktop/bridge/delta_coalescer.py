"""Joins the TokenDeltas of one reply into at most 30 paints a second; no timer runs while nothing arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer

from inference import TokenDelta

PAINT_INTERVAL_MS = 34


class DeltaCoalescer(QObject):
    """The first delta is painted at once; what comes within interval_ms after a paint is joined and painted then."""

    def __init__(
        self,
        paint: Callable[[TokenDelta], None],
        interval_ms: int = PAINT_INTERVAL_MS,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._paint = paint
        self._pending: TokenDelta | None = None
        self._rest = QTimer(self, singleShot=True, interval=interval_ms)
        self._rest.timeout.connect(self.flush)

    @property
    def is_waiting(self) -> bool:
        return self._rest.isActive()

    def add(self, delta: TokenDelta) -> None:
        self._pending = delta if self._pending is None else _joined(self._pending, delta)
        if not self._rest.isActive():
            self.flush()

    def flush(self) -> None:
        """Paint what is pending now; the timer runs on only if there was something."""
        delta, self._pending = self._pending, None
        if delta is None:
            self._rest.stop()
            return
        self._rest.start()
        self._paint(delta)


def _joined(first: TokenDelta, second: TokenDelta) -> TokenDelta:
    return replace(
        second,
        text=first.text + second.text,
        reasoning=first.reasoning + second.reasoning,
        token_ids=first.token_ids + second.token_ids,
        logprobs=first.logprobs + second.logprobs,
    )
