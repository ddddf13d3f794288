"""Where one types: grows with its text, sends on Enter and never loses what was typed."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop.chat.context_count_button import ContextCountButton
from desktop.chat.transcript_style import transcript_style
from desktop.icons import icon
from desktop.theme import theme_of

_MAX_LINES = 10
_BUTTON_PX = 34
_PAD_PX = 14
_SCROLL_BAR_PX = 12


class _MessageEdit(QPlainTextEdit):
    """Plain text in which Enter sends."""

    enter_pressed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._has_preedit = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if not is_enter or event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            super().keyPressEvent(event)
        elif not self._has_preedit:
            # During a pre-edit Enter belongs to the input method: it accepts a candidate.
            self.enter_pressed.emit()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        super().inputMethodEvent(event)
        self._has_preedit = bool(event.preeditString())

    def insertFromMimeData(self, source: QMimeData) -> None:
        if source.hasText():
            self.insertPlainText(source.text())

    def _fit(self) -> None:
        # The document's height is counted in lines here.
        lines = min(max(1.0, self.document().size().height()), _MAX_LINES)
        line_height = QFontMetricsF(self.font()).lineSpacing()
        self.setFixedHeight(round(lines * line_height + 2 * self.document().documentMargin() + 2))
        fits = self.document().size().height() <= _MAX_LINES
        policy = Qt.ScrollBarPolicy.ScrollBarAlwaysOff if fits else Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self.setVerticalScrollBarPolicy(policy)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit()


class Composer(QWidget):
    """`submitted` leaves the text in place: the caller clears it once the message is on disk."""

    submitted = Signal(str)
    stop_requested = Signal()
    text_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._busy = False
        self._scale = 1.0
        self._frame = QFrame(self)
        self._frame.setObjectName("composerFrame")
        self._edit = _MessageEdit(self._frame)
        self._edit.setAccessibleName("Message")
        self._edit.setAccessibleDescription("Enter sends, Shift and Enter begin a new line.")
        self.context_count = ContextCountButton(self._frame)
        self._send = self._button("Send (Enter)", "Send")
        self._stop = self._button("Stop (Esc)", "Stop")
        self._note = QLabel(self)
        self._note.setTextFormat(Qt.TextFormat.PlainText)
        self._note.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._note.setWordWrap(True)

        self._inside = QGridLayout(self._frame)
        self._inside.setContentsMargins(_PAD_PX, 8, 8, 8)
        self._inside.setSpacing(6)
        self._inside.setColumnStretch(0, 1)
        self._is_in_one_row = False
        self._lay_out(in_one_row=True)
        centred = QHBoxLayout()
        centred.addStretch(1)
        centred.addWidget(self._frame, 1000)
        centred.addStretch(1)
        column = QVBoxLayout(self)
        # On the right as well the room that the transcript leaves for its scroll bar.
        column.setContentsMargins(8, 4, 8 + _SCROLL_BAR_PX, 10)
        column.setSpacing(4)
        column.addLayout(centred)
        column.addWidget(self._note)

        self.setFocusProxy(self._edit)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._edit.enter_pressed.connect(self._submit)
        self._edit.textChanged.connect(self._on_text_changed)
        self._send.clicked.connect(self._submit)
        self._stop.clicked.connect(self.stop_requested)
        self.set_busy(False)
        self.set_note("")
        self._restyle()

    def _lay_out(self, *, in_one_row: bool) -> None:
        """Text of one line stands beside count and buttons; longer text has the whole width, and they stand below it."""
        if in_one_row == self._is_in_one_row:
            return
        self._is_in_one_row = in_one_row
        inside, bottom = self._inside, Qt.AlignmentFlag.AlignBottom
        for widget in (self._edit, self.context_count, self._stop, self._send):
            inside.removeWidget(widget)
        row = 0 if in_one_row else 1
        middle = Qt.AlignmentFlag.AlignVCenter
        inside.addWidget(self._edit, 0, 0, 1, 1 if in_one_row else 4, middle)
        inside.addWidget(self.context_count, row, 1, middle)
        inside.addWidget(self._stop, row, 2, bottom)
        inside.addWidget(self._send, row, 3, bottom)

    def _fits_in_one_row(self) -> bool:
        """Whether the text is one line beside the others: by its width there, so that the answer does not depend on
        where it stands now."""
        text = self.text()
        room = self._frame.width() - self.context_count.sizeHint().width() - 2 * _BUTTON_PX - 4 * _PAD_PX
        # Most of a long text need not be measured.
        return (
            len(text) <= room
            and "\n" not in text
            and QFontMetricsF(self._edit.font()).horizontalAdvance(text) <= room
        )

    def _button(self, tool_tip: str, name: str) -> QToolButton:
        button = QToolButton(self._frame)
        button.setToolTip(tool_tip)
        button.setAccessibleName(name)
        button.setFixedSize(_BUTTON_PX, _BUTTON_PX)
        button.setIconSize(QSize(20, 20))
        return button

    def text(self) -> str:
        return self._edit.toPlainText()

    def set_text(self, text: str) -> None:
        """Puts text in place of what is there; Ctrl+Z brings that back."""
        cursor = self._edit.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(text)
        self._edit.setTextCursor(cursor)

    def clear(self) -> None:
        """Empties the composer; Ctrl+Z brings the text back."""
        self.set_text("")

    def set_hint(self, hint: str) -> None:
        """What an empty composer shows."""
        self._edit.setPlaceholderText(hint)

    def set_note(self, note: str) -> None:
        """A small line below, as "Your message waits for the model to load"."""
        self._note.setText(note)
        self._note.setVisible(bool(note))

    def set_busy(self, busy: bool) -> None:
        """A reply is running: Stop is shown, typing and sending stay possible."""
        self._busy = busy
        self._stop.setVisible(busy)
        self._show_send()

    def _has_text(self) -> bool:
        return any(not character.isspace() for character in self.text())

    def _show_send(self) -> None:
        has_text = self._has_text()
        self._send.setEnabled(has_text)
        self._send.setVisible(has_text or not self._busy)

    def _on_text_changed(self) -> None:
        self._lay_out(in_one_row=self._fits_in_one_row())
        self._show_send()
        self.text_changed.emit(self.text())

    def _submit(self) -> None:
        if self._has_text():
            self.submitted.emit(self.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._busy:
            self.stop_requested.emit()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out(in_one_row=self._fits_in_one_row())

    def set_font_scale(self, scale: float) -> None:
        """As the transcript's: 1.0 is 15 px text."""
        self._scale = scale
        self._restyle()

    def _restyle(self) -> None:
        theme = theme_of(self.palette())
        style = transcript_style(theme, self.font(), self._scale, available_width=1e6)
        self._edit.setFont(style.text_font)
        # What one types stands right below the transcript's column.
        self._frame.setMaximumWidth(int(style.column_width) + 2 * _PAD_PX)
        self._send.setIcon(icon("send", theme.accent_text, theme.muted))
        self._stop.setIcon(icon("stop", theme.text))
        self.context_count.restyle(theme)
        radius = _BUTTON_PX // 2
        self._frame.setStyleSheet(
            f"#composerFrame {{ background: {theme.card}; border: 1px solid {theme.border}; border-radius: 16px; }}"
            f"QPlainTextEdit {{ background: transparent; color: {theme.text}; border: none;"
            f" placeholder-text-color: {theme.muted}; }}"
            f"QToolButton {{ border: 2px solid transparent; border-radius: {radius}px; padding: 0; }}"
            f"QToolButton:focus {{ border-color: {theme.link}; }}"
        )
        self._send.setStyleSheet(
            f"QToolButton {{ background: {theme.accent}; }}"
            f"QToolButton:disabled {{ background: {theme.bubble}; }}"
        )
        self._stop.setStyleSheet(f"QToolButton {{ background: {theme.bubble}; }}")
        self._note.setStyleSheet(f"color: {theme.muted}; font-size: 12px;")
