"""The rows' editors: a line for a number, several lines for texts, a list for a choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QFontMetricsF, QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QComboBox, QLineEdit, QPlainTextEdit

from desktop.chat.sampling_layers import LayeredValue
from desktop.chat_settings.sampling_fields import SamplingField
from desktop.chat_settings.setting_row import SettingRow
from desktop.chat_settings.value_text import origin_words, shown_value, value_from
from desktop.icons import icon
from desktop.theme import theme_of

_CHEVRON_PX = 14


class TypedRow(SettingRow):
    """A number or texts. Empty is reset: what holds then stands in the editor, in grey."""

    def __init__(self, field: SamplingField) -> None:
        super().__init__(field.label, field.hint)
        self.field = field
        self.editor: QLineEdit | TextBox
        if field.kind == "texts":
            self.editor = TextBox(lines=3)
            self.editor.textChanged.connect(self._take)
        else:
            self.editor = QLineEdit()
            self.editor.setAlignment(Qt.AlignmentFlag.AlignRight)
            self.editor.textChanged.connect(self._take)
        self._is_showing = False
        self.reset_button.clicked.connect(self._clear)
        self.place(self.editor, is_wide=field.kind == "texts")

    def text(self) -> str:
        return self.editor.text()

    def show_value(self, own: Any, inherited: LayeredValue, *, is_set: bool, is_other_chat: bool) -> None:
        self.editor.setPlaceholderText(shown_value(self.field, inherited.value))
        text = shown_value(self.field, own) if is_set else ""
        # What one is typing is not tidied up under one's hands.
        if is_other_chat or not self.error:
            self.show_error("")
            if is_other_chat or self._value() != (own if is_set else None):
                self._is_showing = True
                self.editor.setText(text)
                self._is_showing = False
        self.show_origin(
            origin_words(self.field, inherited, is_set=is_set), is_set=is_set or bool(self.error)
        )

    def _clear(self) -> None:
        self.show_error("")
        self._is_showing = True
        self.editor.setText("")
        self._is_showing = False

    def _value(self) -> Any:
        try:
            return value_from(self.field, self.text()) if self.text().strip() else None
        except ValueError:
            return None

    def _take(self) -> None:
        if self._is_showing:
            return
        if not self.text().strip():
            self.show_error("")
            self.reset.emit()
            return
        try:
            value = value_from(self.field, self.text())
        except ValueError as error:
            self.show_error(f"{error} Not used.")
            return
        self.show_error("")
        self.edited.emit(value)


class ChoiceRow(SettingRow):
    """The first entry is what holds where the chat chooses nothing."""

    def __init__(self, label: str, hint: str, *, is_wide: bool = False) -> None:
        super().__init__(label, hint)
        self.editor = QuietComboBox()
        self.editor.activated.connect(self._take)
        self.place(self.editor, is_wide=is_wide)

    def show_choices(self, inherited: str, choices: Sequence[tuple[Any, str]], chosen: Any) -> None:
        """chosen None: what is inherited."""
        entries = [inherited, *(words for _, words in choices)]
        # Filled anew it would close under the hands of whoever is choosing.
        if [self.editor.itemText(index) for index in range(self.editor.count())] != entries:
            self.editor.clear()
            self.editor.addItem(inherited, None)
            for value, words in choices:
                self.editor.addItem(words, value)
        values = [value for value, _ in choices]
        self.editor.setCurrentIndex(values.index(chosen) + 1 if chosen in values else 0)

    def _take(self, index: int) -> None:
        value = self.editor.itemData(index)
        if index == 0:
            self.reset.emit()
        else:
            self.edited.emit(value)


class QuietComboBox(QComboBox):
    """The wheel scrolls the panel it is in, and changes nothing on the way; long entries do not widen the panel."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumContentsLength(8)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        # The style sheet that gives it a border takes its arrow away.
        theme = theme_of(self.window().palette())
        left, top = self.width() - _CHEVRON_PX - 6, (self.height() - _CHEVRON_PX) // 2
        painter = QPainter(self)
        icon("chevron-down", theme.muted).paint(painter, left, top, _CHEVRON_PX, _CHEVRON_PX)
        painter.end()


class TextBox(QPlainTextEdit):
    """A few lines of plain text; has a line editor's text() and setText()."""

    def __init__(self, lines: int, *, is_code: bool = False) -> None:
        super().__init__()
        self.setTabChangesFocus(True)
        if is_code:
            self.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        height = lines * QFontMetricsF(self.font()).lineSpacing() + 2 * self.document().documentMargin() + 4
        self.setFixedHeight(round(height))

    def text(self) -> str:
        return self.toPlainText()

    def setText(self, text: str) -> None:
        self.setPlainText(text)
