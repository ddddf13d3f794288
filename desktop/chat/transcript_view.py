"""The transcript: the messages of a chat, of any number and length, and the reply that streams in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QElapsedTimer, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QWidget

from desktop.chat.empty_hint import EmptyHint
from desktop.chat.hot_spot import HotSpot
from desktop.chat.text_marks import MarkPlace, TextMarks
from desktop.chat.transcript_canvas import TranscriptCanvas
from desktop.chat.transcript_message import ShownReasoning, TranscriptMessage
from desktop.chat.transcript_selection import TranscriptSelection

_FRAME_MS = 33
_GO_TO_STEPS = 5
_PARSED_PER_MS = 120
"""Characters of an open block that may be parsed again for each millisecond between two paints: a very
long block is painted less often, and never takes the processor from the model."""


class TranscriptView(TranscriptCanvas):
    """Keeps to the end while a reply streams, unless the reader has scrolled up."""

    messages_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._pending: dict[int, list[str]] = {}
        self._pending_reasoning: dict[int, ShownReasoning] = {}
        self.flush_count = 0
        """How often streamed text was shown so far."""
        self._since_flush = QElapsedTimer()
        self._flush_timer = QTimer(self, singleShot=True)
        self._flush_timer.timeout.connect(self.flush)
        self.setAccessibleName("Transcript")
        self.setAccessibleDescription(
            "The messages of this chat. Page Up and Page Down scroll, Tab reaches buttons."
        )

    def set_messages(self, messages: Sequence[TranscriptMessage]) -> None:
        """Shows another chat, at its end."""
        self._pending.clear()
        self._pending_reasoning.clear()
        self._flush_timer.stop()
        self._selection.clear()
        self._marks = None
        self._layout.set_messages(messages)
        self._sticks_to_end = True
        self._settle()
        self.messages_changed.emit()

    def append_message(self, message: TranscriptMessage) -> None:
        """Adds a message at the end; the view goes there if the user wrote it."""
        self._layout.append(message)
        self._sticks_to_end |= message.role == "user"
        self._settle()
        self.messages_changed.emit()

    def append_text(self, key: int, text: str, reasoning: ShownReasoning | None = None) -> None:
        """Adds streamed text, shown with the next paint; at most 30 paints a second. reasoning: all of it so far."""
        layout = self._layout.message(key)
        self._pending.setdefault(key, []).append(text)
        if reasoning is not None:
            self._pending_reasoning[key] = reasoning
        if self._flush_timer.isActive():
            return
        interval = max(_FRAME_MS, layout.open_characters // _PARSED_PER_MS)
        elapsed = self._since_flush.elapsed() if self._since_flush.isValid() else interval
        self._flush_timer.start(max(0, interval - elapsed))

    def flush(self) -> None:
        """Shows at once what `append_text` was given."""
        if not self._pending:
            return
        anchor = self._layout.anchor(self._top)
        for key, pieces in self._pending.items():
            layout = self._layout.message(key)
            if not self._sticks_to_end:
                layout.hold_reasoning()
            layout.append("".join(pieces), self._pending_reasoning.get(key))
            self._layout.height_changed(self._layout.index_of(key))
        self._pending.clear()
        self._pending_reasoning.clear()
        self._flush_timer.stop()
        self.flush_count += 1
        self._since_flush.restart()
        self._top = self._layout.position(anchor)
        self._settle()
        self.messages_changed.emit()

    def update_message(self, message: TranscriptMessage) -> None:
        """Replaces the message of the same key; blocks that stay equal stay laid out.

        The text is taken from `message`: what `append_text` was given and is not in it is dropped.
        """
        self._pending.pop(message.key, None)
        self._pending_reasoning.pop(message.key, None)
        layout = self._layout.message(message.key)
        was_streaming = layout.message.state == "writing"
        anchor = self._layout.anchor(self._top)
        layout.set_message(message)
        self._layout.height_changed(self._layout.index_of(message.key))
        self._top = self._layout.position(anchor)
        self._settle()
        self.messages_changed.emit()
        if was_streaming and message.state == "done" and QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, message.text))

    def toggle_details(self, key: int) -> None:
        """Unfolds a message's details or folds them away. What one reads stays where it is, but the last message's
        details come into view."""
        layout = self._layout.message(key)
        self._toggle(key, "details", layout.toggle_details)
        if layout.is_unfolded and QAccessible.isActive():
            words = ". ".join(f"{detail.label}: {detail.value}" for detail in layout.message.details)
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, words))

    def toggle_reasoning(self, key: int) -> None:
        """Unfolds what the model thought before its answer, or folds it away."""
        layout = self._layout.message(key)
        self._toggle(key, "reasoning", layout.toggle_reasoning)
        if layout.is_reasoning_unfolded and layout.message.reasoning is not None and QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, layout.message.reasoning.text))

    def _toggle(self, key: int, kind: str, toggle: Callable[[], None]) -> None:
        is_focused = self._focused_spot is not None
        anchor = self._layout.anchor(self._top)
        toggle()
        self._layout.height_changed(self._layout.index_of(key))
        self._top = self._layout.position(anchor)
        # What is unfolded above the answer must not push the eye to the end.
        is_last = self._layout.index_of(key) == len(self.shown_messages()) - 1
        self._sticks_to_end &= is_last and kind == "details"
        self._settle()
        bar = self.verticalScrollBar()
        self._sticks_to_end = bar.value() >= bar.maximum() - 1
        if is_focused:
            spots = self.visible_spots()
            self._focused_spot = next(
                (n for n, (owner, spot) in enumerate(spots) if (owner, spot.kind) == (key, kind)), None
            )

    def activate(self, key: int, spot: HotSpot) -> None:
        if spot.kind == "details":
            self.toggle_details(key)
        elif spot.kind == "reasoning":
            self.toggle_reasoning(key)
        else:
            super().activate(key, spot)

    def remove_message(self, key: int) -> None:
        anchor = self._layout.anchor(self._top)
        self._pending.pop(key, None)
        self._pending_reasoning.pop(key, None)
        self._selection.clear()
        self._layout.remove(key)
        self._top = self._layout.position(anchor)
        self._settle()
        self.messages_changed.emit()

    def show_marks(self, marks: TextMarks | None) -> None:
        """Until they are shown anew, or another chat is."""
        if marks != self._marks:
            self._marks = marks
            self.viewport().update()

    @property
    def shown_marks(self) -> TextMarks | None:
        return self._marks

    def top_message(self) -> int:
        """Index of the message at the top edge; 0 if there are none."""
        return self._layout.index_at(self._top)

    def go_to(self, place: MarkPlace) -> None:
        """Brings a mark into view, unfolded if need be; what is there already does not move."""
        index = self._layout.index_of(place.key)
        self._go_to(index, lambda: self._layout.messages[index].y_of(place))

    def go_to_message(self, key: int) -> None:
        """Brings the beginning of a message into view."""
        self._go_to(self._layout.index_of(key), lambda: 0.0)

    def _go_to(self, index: int, y_in_message: Callable[[], float]) -> None:
        self._sticks_to_end = False
        room, line = self.viewport().height(), self._layout.style.line_height
        # What is laid out on the way there turns out higher or lower than it was thought to be.
        for _ in range(_GO_TO_STEPS):
            y = y_in_message()
            self._layout.height_changed(index)
            y += self._layout.top_of(index)
            if self._top + line <= y <= self._top + room - 2 * line:
                break
            self._top = max(0.0, y - room / 3)
            self._settle()
        self._settle()

    def set_empty_hint(self, title: str, lines: Sequence[str], note: str = "") -> None:
        """What an empty chat shows; clicking a line emits `suggestion_chosen`, `note` is small below the title."""
        self._hint = EmptyHint(title, tuple(lines), note)
        self.viewport().update()

    def plain_text(self) -> str:
        """The text of all messages as one reads it, separated by empty lines."""
        self.flush()
        everything = TranscriptSelection()
        everything.select_all(self.shown_messages())
        return everything.text(self.shown_messages())

    def selected_text(self) -> str:
        return self._selection.text(self.shown_messages())

    def message_text_on_screen(self, key: int) -> str:
        """The characters that the layouts of the message's blocks show."""
        self.flush()
        return self._layout.message(key).rows.text_on_screen()

    @property
    def laid_out_blocks(self) -> int:
        """How many blocks are laid out now: a few screens' worth, however long the chat is."""
        return self._layout.laid_out_blocks

    @property
    def read_messages(self) -> int:
        """How many messages were split into blocks so far; the heights of the others are guesses."""
        return sum(message.is_open for message in self.shown_messages())

    def parsed_characters(self, key: int) -> int:
        """How many characters of a message were handed to the markdown parser so far."""
        return self._layout.message(key).parsed_characters
