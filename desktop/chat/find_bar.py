"""The bar above the transcript in which one types what to find in the chat."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QToolButton, QWidget

from desktop.chat.chat_find import ChatFind
from desktop.chat.transcript_view import TranscriptView
from desktop.icons import tinted_icon
from desktop.quantities import format_count
from desktop.theme import theme_of

FIND_PAUSE_MS = 80
"""Whoever types on is not yet looking."""


class FindBar(QFrame):
    closed = Signal()

    def __init__(self, transcript: TranscriptView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("find_bar")
        self.setAccessibleName("Find in this chat")
        self._transcript = transcript
        self.chat_find = ChatFind(transcript, self)
        self.field = QLineEdit()
        self.field.setPlaceholderText("Find in this chat")
        self.field.setAccessibleName("Find in this chat")
        self.field.installEventFilter(self)
        self.count = QLabel()
        self.count.setObjectName("find_count")
        self._pause = QTimer(self, singleShot=True, interval=FIND_PAUSE_MS)
        self._pause.timeout.connect(self._look)
        self.field.textChanged.connect(lambda _: self._pause.start())
        self.chat_find.changed.connect(self._show_count)
        self.previous_button = self._button("Previous match (Shift+F3)", self.go_previous)
        self.next_button = self._button("Next match (F3)", self.go_next)
        self._close_button = self._button("Close (Esc)", self.close_bar)
        self._close_button.setText("✕")
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 6, 12, 6)
        row.setSpacing(6)
        row.addWidget(self.field, 1)
        row.addWidget(self.count)
        for button in (self.previous_button, self.next_button, self._close_button):
            row.addWidget(button)
        self._tint()
        self._show_count()
        self.hide()

    def open_bar(self) -> None:
        """Ready to type; what is selected in the chat, if it is one line, is what is looked for."""
        selected = self._transcript.selected_text().strip()
        if selected and "\n" not in selected:
            self.field.setText(selected)
        self.show()
        self.field.setFocus()
        self.field.selectAll()
        self._look()

    def close_bar(self) -> None:
        if not self.isHidden():
            self._pause.stop()
            self.hide()
            self.chat_find.close()
            self.closed.emit()

    def go_next(self) -> None:
        if self._is_ready():
            self.chat_find.go_next()

    def go_previous(self) -> None:
        if self._is_ready():
            self.chat_find.go_previous()

    def _is_ready(self) -> bool:
        """What was typed just now goes first, and that to the first place it is found at."""
        if self.isHidden():
            self.open_bar()
            return False
        if self._pause.isActive():
            self._pause.stop()
            self._look()
            return False
        return True

    def _look(self) -> None:
        if not self.isHidden():
            self.chat_find.look_for(self.field.text())

    def _show_count(self) -> None:
        number, count = self.chat_find.number, self.chat_find.count
        more = "…" if self.chat_find.is_counting else ""
        if not self.field.text():
            words = ""
        elif number is not None:
            words = f"{format_count(number)} of {format_count(count)}{more}"
        else:
            words = "Looking…" if self.chat_find.is_counting else "Not found"
        self.count.setText(words)
        self.field.setAccessibleDescription(words)
        for button in (self.previous_button, self.next_button):
            button.setEnabled(count > 0)

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and watched is self.field:
            # Escape is the window's key for stopping a reply, unless it is needed here.
            if event.type() == QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress and event.key() == Qt.Key.Key_Escape:
                self.close_bar()
                return True
            if event.type() == QEvent.Type.KeyPress and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                is_back = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
                (self.go_previous if is_back else self.go_next)()
                return True
        return super().eventFilter(watched, event)  # type: ignore[arg-type]

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _button(self, tip: str, act: object) -> QToolButton:
        button = QToolButton()
        button.setToolTip(tip)
        button.setAccessibleName(tip.partition(" (")[0])
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        button.clicked.connect(act)
        return button

    def _tint(self) -> None:
        theme = theme_of(self.palette())
        self.previous_button.setIcon(tinted_icon("arrow-up", theme))
        self.next_button.setIcon(tinted_icon("arrow-down", theme))
