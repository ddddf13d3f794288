"""All messages of a chat, one below the other, of which only those near the viewport are laid out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from desktop.chat.message_layout import MessageLayout
from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_style import TranscriptStyle

_OVERSCAN = 0.5
"""Part of the viewport's height that is laid out beyond each of its edges."""
_KEPT = 2.0
"""Part of the viewport's height beyond its edges in which layouts are kept."""
_MAX_PASSES = 12


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the reader sees at the top edge, to be seen there still when heights above turn out otherwise."""

    key: int | None
    row: int | None
    distance: float
    """From the top of message or row, in pixels; a share of its height where that is an estimate."""
    is_share: bool


class TranscriptLayout:
    """Coordinates are relative to the top left corner of the column at the first message."""

    def __init__(self, style: TranscriptStyle) -> None:
        self.style = style
        self.messages: list[MessageLayout] = []
        self._index_by_key: dict[int, int] = {}
        self._tops: list[float] = [self._margin]
        self._valid = 0
        """The number of messages whose tops are right."""
        self._touched: set[int] = set()
        """Messages that may hold laid-out blocks."""

    @property
    def _margin(self) -> float:
        return self.style.px(28)

    @property
    def laid_out_blocks(self) -> int:
        return sum(message.laid_out_blocks for message in self.messages)

    @property
    def height(self) -> float:
        return self.top_of(len(self.messages)) - self._gap + self._margin if self.messages else 0.0

    @property
    def _gap(self) -> float:
        return self.style.px(26)

    def set_messages(self, messages: Sequence[TranscriptMessage]) -> None:
        self.messages = [MessageLayout(message, self.style) for message in messages]
        self._index()

    def append(self, message: TranscriptMessage) -> None:
        if message.key in self._index_by_key:
            raise ValueError(f"message {message.key} is shown already")
        self._index_by_key[message.key] = len(self.messages)
        self.messages.append(MessageLayout(message, self.style))

    def remove(self, key: int) -> None:
        del self.messages[self._index_by_key[key]]
        self._index()

    def restyle(self, style: TranscriptStyle) -> None:
        self.style = style
        for message in self.messages:
            message.restyle(style)
        self._valid = 0

    def index_of(self, key: int) -> int:
        """Raises KeyError if no such message is shown."""
        return self._index_by_key[key]

    def message(self, key: int) -> MessageLayout:
        return self.messages[self._index_by_key[key]]

    def height_changed(self, index: int) -> None:
        self._valid = min(self._valid, index)

    def _index(self) -> None:
        self._index_by_key = {layout.message.key: i for i, layout in enumerate(self.messages)}
        if len(self._index_by_key) != len(self.messages):
            raise ValueError("two messages have the same key")
        self._touched.clear()
        self._touched.update(i for i, message in enumerate(self.messages) if message.is_open)
        self._valid = 0

    def top_of(self, index: int) -> float:
        """The top of a message; for the number of messages, where the next one would begin."""
        if self._valid < index:
            del self._tops[self._valid + 1 :]
            self._tops[0] = self._margin
            top = self._tops[-1]
            for message in self.messages[self._valid :]:
                top += message.height + self._gap
                self._tops.append(top)
            self._valid = len(self.messages)
        return self._tops[index] if index else self._margin

    def index_at(self, y: float) -> int:
        """The message at a height, the nearest one outside; 0 if there are none."""
        self.top_of(len(self.messages))
        return min(max(0, bisect_right(self._tops, y) - 1), max(0, len(self.messages) - 1))

    def visible(self, top: float, bottom: float) -> range:
        """The messages that touch a range."""
        if not self.messages:
            return range(0)
        return range(self.index_at(top), self.index_at(bottom) + 1)

    def settle(self, top: float, viewport_height: float, at_end: bool) -> float:
        """Lays out what the viewport shows from `top` on, or from the end up; returns the top then."""
        over = _OVERSCAN * viewport_height
        for _ in range(_MAX_PASSES):
            if at_end:
                top = max(0.0, self.height - viewport_height)
            anchor = self.anchor(top)
            changed = False
            for index in self.visible(top - over, top + viewport_height + over):
                message_top = self.top_of(index)
                message = self.messages[index]
                self._touched.add(index)
                if message.lay_out(top - over - message_top, top + viewport_height + over - message_top):
                    self.height_changed(index)
                    changed = True
            if not changed:
                break
            top = self.position(anchor)
        if at_end:
            top = self.height - viewport_height
        top = min(max(0.0, top), max(0.0, self.height - viewport_height))
        self._release(top, viewport_height)
        return top

    def _release(self, top: float, viewport_height: float) -> None:
        first, last = top - _KEPT * viewport_height, top + (1 + _KEPT) * viewport_height
        near = self.visible(first, last)
        for index in list(self._touched):
            message_top = self.top_of(index)
            self.messages[index].release(first - message_top, last - message_top)
            if index not in near:
                self._touched.discard(index)

    def anchor(self, top: float) -> Anchor:
        if not self.messages:
            return Anchor(None, None, 0.0, False)
        index = self.index_at(top)
        message = self.messages[index]
        key = message.message.key
        into = top - self.top_of(index)
        if into <= 0:
            return Anchor(key, None, into, False)
        if not message.is_open:
            return Anchor(key, None, into / message.height if message.height else 0.0, True)
        if into <= message.rows_origin.y():
            return Anchor(key, None, into, False)
        placed = message.rows.row_at(into - message.rows_origin.y())
        if placed is None or into > message.height:
            return Anchor(key, None, into, False)
        distance = into - message.rows_origin.y() - placed.top
        if placed.row.measured or not placed.row.height:
            return Anchor(key, placed.number, distance, False)
        return Anchor(key, placed.number, distance / placed.row.height, True)

    def position(self, anchor: Anchor) -> float:
        """Where the anchor is now; 0 if its message is gone."""
        index = None if anchor.key is None else self._index_by_key.get(anchor.key)
        if index is None:
            return 0.0
        message = self.messages[index]
        top, height = self.top_of(index), message.height
        if anchor.row is not None:
            rows = message.rows
            placed = next((p for p in rows.placed() if p.number == anchor.row), None)
            if placed is not None:
                top += message.rows_origin.y() + placed.top
                height = placed.row.height
        return float(round(top + anchor.distance * (height if anchor.is_share else 1.0)))
