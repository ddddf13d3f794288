"""The mouse over the transcript: selecting, following links, pressing buttons."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QElapsedTimer, QObject, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QGuiApplication, QMouseEvent
from PySide6.QtWidgets import QWidget

from desktop.chat.hot_spot import HotSpot
from desktop.chat.message_layout import MessageLayout
from desktop.chat.transcript_selection import TranscriptPosition, TranscriptSelection

_AUTOSCROLL_MS = 33


class PointedAt(Protocol):
    """What the pointer asks of the view; points are in the viewport."""

    def viewport(self) -> QWidget: ...
    def shown_messages(self) -> list[MessageLayout]: ...
    def position_at(self, point: QPointF) -> TranscriptPosition | None: ...
    def url_at(self, point: QPointF) -> str: ...
    def hot_spot_at(self, point: QPointF) -> tuple[int, HotSpot] | None: ...
    def activate(self, key: int, spot: HotSpot) -> None: ...
    def open_link(self, url: QUrl) -> None: ...
    def hover(self, url: str, spot: tuple[int, HotSpot] | None) -> None: ...
    def scroll_by(self, distance: float) -> None: ...


class TranscriptPointer(QObject):
    """Mouse events come in from the view; no timer runs unless the mouse drags beyond an edge."""

    def __init__(self, view: PointedAt, selection: TranscriptSelection) -> None:
        super().__init__(view.viewport())
        self._view = view
        self._selection = selection
        self._pressed_url = ""
        self._pressed_spot: tuple[int, HotSpot] | None = None
        self._selecting = False
        self._point = QPointF()
        self._since_double_click = QElapsedTimer()
        self._autoscroll = QTimer(self, interval=_AUTOSCROLL_MS)
        self._autoscroll.timeout.connect(self._scroll_on)

    def press(self, event: QMouseEvent) -> None:
        point = event.position()
        if event.button() != Qt.MouseButton.LeftButton:
            return
        self._pressed_spot = self._view.hot_spot_at(point)
        self._pressed_url = self._view.url_at(point)
        position = self._view.position_at(point)
        if self._pressed_spot is not None or position is None:
            return
        self._selecting = True
        interval = QGuiApplication.styleHints().mouseDoubleClickInterval()
        if self._since_double_click.isValid() and self._since_double_click.elapsed() < interval:
            self._since_double_click.invalidate()
            self._selection.select_row(self._view.shown_messages(), position)
            self._selecting = False
        elif event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self._selection.exists:
            self._selection.extend(position)
        else:
            self._selection.start(position)
        self._view.viewport().update()

    def double_click(self, event: QMouseEvent) -> None:
        spot = self._view.hot_spot_at(event.position())
        position = self._view.position_at(event.position())
        if spot is not None or position is None or event.button() != Qt.MouseButton.LeftButton:
            self.press(event)
            return
        self._since_double_click.start()
        self._selecting = False
        self._selection.select_word(self._view.shown_messages(), position)
        self._view.viewport().update()

    def move(self, event: QMouseEvent) -> None:
        self._point = event.position()
        if self._selecting and event.buttons() & Qt.MouseButton.LeftButton:
            self._extend()
            beyond = not 0 <= self._point.y() < self._view.viewport().height()
            if beyond != self._autoscroll.isActive():
                self._autoscroll.start() if beyond else self._autoscroll.stop()
            return
        self._view.hover(self._view.url_at(self._point), self._view.hot_spot_at(self._point))

    def release(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        self._autoscroll.stop()
        self._selecting = False
        pressed_spot, self._pressed_spot = self._pressed_spot, None
        pressed_url, self._pressed_url = self._pressed_url, ""
        if pressed_spot is not None:
            if self._view.hot_spot_at(event.position()) == pressed_spot:
                self._view.activate(*pressed_spot)
        elif pressed_url and self._selection.is_empty and self._view.url_at(event.position()) == pressed_url:
            self._view.open_link(QUrl(pressed_url))
        elif not self._selection.is_empty and QGuiApplication.clipboard().supportsSelection():
            text = self._selection.text(self._view.shown_messages())
            QGuiApplication.clipboard().setText(text, QGuiApplication.clipboard().Mode.Selection)

    def _extend(self) -> None:
        position = self._view.position_at(self._point)
        if position is not None:
            self._selection.extend(position)
            self._view.viewport().update()

    def _scroll_on(self) -> None:
        y, height = self._point.y(), self._view.viewport().height()
        self._view.scroll_by((y if y < 0 else y - height) * 0.5)
        self._extend()
