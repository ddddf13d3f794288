"""The scrolled surface of the transcript: painting, scrolling, mouse and keys."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QToolButton, QWidget

from desktop.chat.empty_hint import EmptyHint
from desktop.chat.hot_spot import HotSpot, moved_spots, paint_hot_spot
from desktop.chat.message_layout import MessageLayout
from desktop.chat.text_marks import TextMarks
from desktop.chat.transcript_layout import TranscriptLayout
from desktop.chat.transcript_pointer import TranscriptPointer
from desktop.chat.transcript_selection import TranscriptPosition, TranscriptSelection
from desktop.chat.transcript_style import TranscriptStyle, transcript_style
from desktop.icons import icon
from desktop.settings import MAX_TEXT_SCALE, MIN_TEXT_SCALE
from desktop.theme import theme_of

_COPIED_MS = 1500
_SCALE_STEP = 0.1
_ZOOM_KEYS = {
    Qt.Key.Key_Plus: _SCALE_STEP,
    Qt.Key.Key_Equal: _SCALE_STEP,
    Qt.Key.Key_Minus: -_SCALE_STEP,
}


class TranscriptCanvas(QAbstractScrollArea):
    """Shows a TranscriptLayout; stays at its end until the reader scrolls away."""

    link_activated = Signal(QUrl)
    link_hovered = Signal(str)
    action_triggered = Signal(int, str)
    suggestion_chosen = Signal(str)
    font_scale_changed = Signal(float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scale = 1.0
        self._layout = TranscriptLayout(self._style_now())
        self._selection = TranscriptSelection()
        self._marks: TextMarks | None = None
        self._hint = EmptyHint()
        self._top = 0.0
        self._sticks_to_end = True
        self._is_settling = False
        self._hovered: tuple[int, HotSpot] | None = None
        self._hovered_url = ""
        self._focused_spot: int | None = None
        self._copied: tuple[int, str] | None = None
        self._copied_timer = QTimer(self, singleShot=True, interval=_COPIED_MS)
        self._copied_timer.timeout.connect(self._forget_copied)

        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)
        self._pointer = TranscriptPointer(self, self._selection)
        self._newest_button = QToolButton(self.viewport())
        self._newest_button.setText("To newest")
        self._newest_button.setToolTip("To the newest message (End)")
        self._newest_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._newest_button.setCursor(Qt.CursorShape.ArrowCursor)
        self._newest_button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._newest_button.clicked.connect(self.scroll_to_end)
        self._newest_button.hide()
        self._style_newest_button()

    # Style.

    def font_scale(self) -> float:
        return self._scale

    def set_font_scale(self, scale: float) -> None:
        """1.0 is 15 px text."""
        scale = round(min(max(MIN_TEXT_SCALE, scale), MAX_TEXT_SCALE), 2)
        if scale != self._scale:
            self._scale = scale
            self._restyle()
            self.font_scale_changed.emit(scale)

    @property
    def style_in_use(self) -> TranscriptStyle:
        return self._layout.style

    def _style_now(self) -> TranscriptStyle:
        # Room for the scroll bar is always left, so that the text does not move when it comes and goes.
        bar_width = self.verticalScrollBar().sizeHint().width()
        return transcript_style(theme_of(self.palette()), self.font(), self._scale, self.width() - bar_width)

    def _restyle(self) -> None:
        style = self._style_now()
        if style != self._layout.style:
            anchor = self._layout.anchor(self._top)
            self._layout.restyle(style)
            self._top = self._layout.position(anchor)
        self._settle()

    def _style_newest_button(self) -> None:
        theme = theme_of(self.palette())
        self._newest_button.setIcon(icon("arrow-down", theme.text))
        self._newest_button.setStyleSheet(
            f"QToolButton {{ background: {theme.card}; color: {theme.text}; border: 1px solid {theme.border};"
            f" border-radius: 14px; padding: 5px 12px 5px 8px; }} QToolButton:hover {{ background: {theme.panel}; }}"
        )

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._style_newest_button()
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._restyle()

    # Scrolling.

    def scroll_to_end(self) -> None:
        self._sticks_to_end = True
        self._settle()

    def scroll_by(self, distance: float) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + round(distance))

    def _settle(self) -> None:
        """Lays out what is visible now and brings scroll bar and picture in line with it."""
        height = self.viewport().height()
        self._top = self._layout.settle(self._top, height, self._sticks_to_end)
        bar = self.verticalScrollBar()
        self._is_settling = True
        bar.setPageStep(height)
        bar.setSingleStep(max(1, round(self._layout.style.line_height)))
        bar.setRange(0, max(0, int(self._layout.height - height)))
        bar.setValue(round(self._top))
        self._is_settling = False
        self._focused_spot = None
        self._newest_button.setVisible(self._top < self._layout.height - height - self._layout.style.px(40))
        size = self._newest_button.sizeHint()
        left = (self.viewport().width() - size.width()) // 2
        self._newest_button.setGeometry(left, height - size.height() - 12, size.width(), size.height())
        self.viewport().update()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if self._is_settling:
            return
        bar = self.verticalScrollBar()
        self._top = float(bar.value())
        self._sticks_to_end = bar.value() >= bar.maximum() - 1
        self._settle()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            steps = event.angleDelta().y() / 120
            self.set_font_scale(self._scale + steps * _SCALE_STEP)
            return
        sideways = event.pixelDelta().x() or event.angleDelta().x() / 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not sideways:
            sideways = event.pixelDelta().y() or event.angleDelta().y() / 2
        if abs(sideways) > abs(event.angleDelta().y()) / 4 and self._scroll_block(
            event.position(), -sideways
        ):
            return
        super().wheelEvent(event)

    def _scroll_block(self, point: QPointF, distance: float) -> bool:
        index = self._message_index_at(point)
        if index is None:
            return False
        message = self._layout.messages[index]
        placed = message.rows.row_at(self._in_message(index, point).y() - message.rows_origin.y())
        if placed is None or placed.row.layout is None or not placed.row.layout.max_scroll_x:
            return False
        placed.row.layout.scroll_by(distance)
        self.viewport().update()
        return True

    # Painting.

    def _column_left(self) -> float:
        room = self.width() - self.verticalScrollBar().sizeHint().width()
        return float(int((room - self._layout.style.column_width) / 2))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        style = self._layout.style
        painter.fillRect(event.rect(), QColor(style.theme.page))
        painter.translate(self._column_left(), 0)
        if not self._layout.messages:
            self._hint.paint(painter, style, self.viewport().height())
        clip = QRectF(event.rect())
        for index in self._layout.visible(self._top + clip.top(), self._top + clip.bottom()):
            # Whole pixels keep text sharp.
            y = round(self._layout.top_of(index) - self._top)
            painter.save()
            painter.translate(0, y)
            column_clip = QRectF(0, clip.top() - y, style.column_width, clip.height())
            self._layout.messages[index].paint(painter, column_clip, self._selection.span(index), self._marks)
            painter.restore()
        painter.resetTransform()
        for number, (key, spot) in enumerate(self.visible_spots()):
            paint_hot_spot(
                painter,
                spot,
                style,
                hovered=self._hovered == (key, spot),
                focused=self._focused_spot == number and self.hasFocus(),
                copied=self._copied == (key, spot.value),
            )

    def visible_spots(self) -> list[tuple[int, HotSpot]]:
        """The buttons in the viewport with their messages' keys, in the viewport's coordinates."""
        height, left = self.viewport().height(), self._column_left()
        if not self._layout.messages:
            spots = self._hint.hot_spots(self._layout.style, height)
            return [(-1, spot) for spot in moved_spots(spots, QPointF(left, 0))]
        found = []
        for index in self._layout.visible(self._top, self._top + height):
            message = self._layout.messages[index]
            y = round(self._layout.top_of(index) - self._top)
            for moved in moved_spots(message.hot_spots(-y, height - y), QPointF(left, y)):
                if moved.rect.bottom() > 0 and moved.rect.top() < height:
                    found.append((message.message.key, moved))
        return found

    # What lies under a point of the viewport.

    def shown_messages(self) -> list[MessageLayout]:
        return self._layout.messages

    def _message_index_at(self, point: QPointF) -> int | None:
        return self._layout.index_at(point.y() + self._top) if self._layout.messages else None

    def _in_message(self, index: int, point: QPointF) -> QPointF:
        y = round(self._layout.top_of(index) - self._top)
        return QPointF(point.x() - self._column_left(), point.y() - y)

    def position_at(self, point: QPointF) -> TranscriptPosition | None:
        index = self._message_index_at(point)
        if index is None:
            return None
        message = self._layout.messages[index]
        local = self._in_message(index, point) - message.rows_origin
        return TranscriptPosition(index, message.rows.position_at(local))

    def url_at(self, point: QPointF) -> str:
        index = self._message_index_at(point)
        if index is None:
            return ""
        message = self._layout.messages[index]
        return message.rows.url_at(self._in_message(index, point) - message.rows_origin)

    def hot_spot_at(self, point: QPointF) -> tuple[int, HotSpot] | None:
        return next((found for found in self.visible_spots() if found[1].rect.contains(point)), None)

    def hover(self, url: str, spot: tuple[int, HotSpot] | None) -> None:
        """Says where the link under the mouse leads and marks the button under it."""
        if spot != self._hovered:
            self._hovered = spot
            self.viewport().update()
        if url != self._hovered_url:
            self._hovered_url = url
            self.link_hovered.emit(url)
        shape = Qt.CursorShape.PointingHandCursor if url or spot else Qt.CursorShape.IBeamCursor
        if self.viewport().cursor().shape() != shape:
            self.viewport().setCursor(shape)

    def activate(self, key: int, spot: HotSpot) -> None:
        """Does what the button says."""
        if spot.kind == "copy":
            QGuiApplication.clipboard().setText(spot.value)
            self._copied = (key, spot.value)
            self._copied_timer.start()
            self.viewport().update()
        elif spot.kind == "action":
            self.action_triggered.emit(key, spot.value)
        else:
            self.suggestion_chosen.emit(spot.value)

    def _forget_copied(self) -> None:
        self._copied = None
        self.viewport().update()

    def open_link(self, url: QUrl) -> None:
        self.link_activated.emit(url)

    # Mouse and keys.

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._pointer.press(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._pointer.double_click(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._pointer.move(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._pointer.release(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self.hover("", None)
        return super().viewportEvent(event)

    def copy_selection(self) -> None:
        if not self._selection.is_empty:
            QGuiApplication.clipboard().setText(self._selection.text(self._layout.messages))

    def select_all(self) -> None:
        self._selection.select_all(self._layout.messages)
        self.viewport().update()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        copy = menu.addAction("Copy", self.copy_selection)
        copy.setEnabled(not self._selection.is_empty)
        url = self.url_at(QPointF(event.pos()))
        if url:
            menu.addAction("Copy link address", lambda: QGuiApplication.clipboard().setText(url))
        menu.addAction("Select all", self.select_all)
        index = self._message_index_at(QPointF(event.pos()))
        if index is not None:
            message = self._layout.messages[index].message
            for action, label in message.menu:
                menu.addAction(label, partial(self.action_triggered.emit, message.key, action))
        menu.exec(event.globalPos())
        menu.deleteLater()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, control = event.key(), event.modifiers() & Qt.KeyboardModifier.ControlModifier
        spots = self.visible_spots()
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        elif control and key in _ZOOM_KEYS:
            self.set_font_scale(self._scale + _ZOOM_KEYS[Qt.Key(key)])
        elif control and key == Qt.Key.Key_0:
            self.set_font_scale(1.0)
        elif key == Qt.Key.Key_Home:
            self.verticalScrollBar().setValue(0)
        elif key == Qt.Key.Key_End:
            self.scroll_to_end()
        elif (
            key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._focused_spot is not None
        ):
            self.activate(*spots[self._focused_spot])
        else:
            super().keyPressEvent(event)

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Tab goes through the visible buttons before it leaves the transcript."""
        count = len(self.visible_spots())
        step = 1 if forward else -1
        first = 0 if forward else count - 1
        following = first if self._focused_spot is None else self._focused_spot + step
        self._focused_spot = following if 0 <= following < count else None
        self.viewport().update()
        return self._focused_spot is not None or super().focusNextPrevChild(forward)
