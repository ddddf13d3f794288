"""Ends a reply at the first stop string, wherever its tokens are cut, and shows no part of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Fed with the text of a reply piece by piece; `found` is set once a stop string is complete.

    Whatever the pieces, the text given back is the same: all before the stop string that is complete first; of several
    that end together, before the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """stops: none of them empty; no stops let every text pass."""
        self._stops = tuple(stops)
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.found: str | None = None

    def append(self, text: str) -> str:
        """What may be shown now: nothing that could still become a stop string, and nothing after one."""
        if not self._stops or self.found is not None:
            return "" if self.found is not None else text
        self._held += text
        end = self._find()
        if end is None:
            end = self._first_possible_start()
            shown, self._held = self._held[:end], self._held[end:]
        else:
            shown, self._held = self._held[:end], ""
        return shown

    def finish(self) -> str:
        """What was held back, when the reply ends for another reason. Empty after a stop string."""
        rest, self._held = self._held, ""
        return rest

    def _find(self) -> int | None:
        """Where the stop string begins that is complete first; sets `found`."""
        starts = ((self._held.find(stop), stop) for stop in self._stops)
        complete = [(start + len(stop), start, stop) for start, stop in starts if start >= 0]
        if not complete:
            return None
        _, start, self.found = min(complete)
        return start

    def _first_possible_start(self) -> int:
        held = self._held
        for start in range(max(0, len(held) - self._longest + 1), len(held)):
            if held[start] in self._first_characters:
                tail = held[start:]
                if any(stop.startswith(tail) for stop in self._stops):
                    return start
        return len(held)
