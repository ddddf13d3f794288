"""One setting: its name, what edits it, where its value comes from, a reset, and why a bad value was refused."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QToolButton, QWidget

from desktop.icons import tinted_icon
from desktop.theme import theme_of

EDITOR_WIDTH_PX = 136


class SettingRow(QWidget):
    """Subclasses put an editor in with place()."""

    edited = Signal(object)
    """The value that was chosen, known to be good."""
    reset = Signal()

    def __init__(self, label: str, hint: str) -> None:
        super().__init__()
        self.name_label = QLabel(label)
        self.name_label.setToolTip(hint)
        self.name_label.setTextFormat(Qt.TextFormat.PlainText)
        self.origin_label = self._note("setting_origin")
        self.error_label = self._note("setting_error")
        self.error_label.hide()
        self.reset_button = QToolButton()
        self.reset_button.setAccessibleName(f"Reset {label}")
        self.reset_button.setToolTip("Take this chat's own value back")
        self.reset_button.setIconSize(QSize(14, 14))
        self.reset_button.clicked.connect(self.reset)
        self._hint = hint
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 4, 0, 4)
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(0, 1)
        self._tint()

    def _note(self, name: str) -> QLabel:
        label = QLabel()
        label.setObjectName(name)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        return label

    def place(self, editor: QWidget, *, is_wide: bool = False) -> None:
        """Beside the name, or below it over the whole width."""
        self._editor = editor
        self.name_label.setBuddy(editor)
        editor.setAccessibleName(self.name_label.text())
        editor.setToolTip(self._hint)
        if is_wide:
            self._grid.addWidget(self.name_label, 0, 0, 1, 2)
            self._grid.addWidget(self.reset_button, 0, 2)
            self._grid.addWidget(editor, 1, 0, 1, 3)
        else:
            editor.setFixedWidth(EDITOR_WIDTH_PX)
            self._grid.addWidget(self.name_label, 0, 0)
            self._grid.addWidget(editor, 0, 1)
            self._grid.addWidget(self.reset_button, 0, 2)
        # A reset that is not there leaves its room, so that editors stand below each other.
        policy = self.reset_button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset_button.setSizePolicy(policy)
        for line, label in ((2, self.origin_label), (3, self.error_label)):
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
            self._grid.addWidget(label, line, 0, 1, 3)

    def show_origin(self, words: str, *, is_set: bool) -> None:
        self.origin_label.setText(words)
        self.origin_label.setVisible(bool(words))
        self.reset_button.setVisible(is_set)
        self._describe()

    def show_error(self, reason: str) -> None:
        """Empty: nothing is wrong. What was typed stays, and what held before holds on."""
        self.error_label.setText(reason)
        self.error_label.setVisible(bool(reason))
        self.reset_button.setVisible(bool(reason) or not self.reset_button.isHidden())
        self._describe()

    def _describe(self) -> None:
        """For screen readers, which do not see what stands below an editor."""
        texts = (self.error_label.text(), self.origin_label.text(), self._hint)
        self._editor.setAccessibleDescription(". ".join(text.rstrip(".") for text in texts if text))

    @property
    def error(self) -> str:
        return self.error_label.text()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        self.reset_button.setIcon(tinted_icon("undo", theme_of(self.palette())))
