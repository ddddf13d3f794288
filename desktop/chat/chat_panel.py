"""The middle of the window: title and model, transcript, composer."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from desktop.chat.composer import Composer
from desktop.chat.find_bar import FindBar
from desktop.chat.private_mark import PrivateMark
from desktop.chat.transcript_view import TranscriptView
from desktop.icons import tinted_icon
from desktop.model_picker import ModelPicker
from desktop.theme import theme_of
from desktop.wording import plain_tool_tip

COMPOSER_HINT = "Message (Shift+Enter for a new line)"
EMPTY_TITLE = "Ask something. It stays on this computer."
PRIVATE_TITLE = "A private chat"
PRIVATE_NOTE = (
    "Nothing the model reads here is kept on disk, so it reads the chat again after a restart. "
    "The messages are kept like those of any chat, until you delete it."
)
SUGGESTIONS = (
    "Explain how a rainbow forms, in three sentences",
    "Write a short, friendly reply that declines an invitation",
    "Give me five names for a small bakery by the sea",
)


class ChatPanel(QWidget):
    def __init__(self, picker: ModelPicker, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("chat_panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.picker = picker
        self.transcript = TranscriptView()
        self.composer = Composer()
        self.find_bar = FindBar(self.transcript)
        self.find_bar.closed.connect(self.composer.setFocus)
        self.composer.set_hint(COMPOSER_HINT)
        self.transcript.font_scale_changed.connect(self.composer.set_font_scale)
        self._title = QLabel()
        self._title.setObjectName("chat_title")
        self._title.setTextFormat(Qt.TextFormat.PlainText)
        # A long title is cut by the window's edge, never the reason for a wide window.
        self._title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._private = PrivateMark()
        self.settings_button = QToolButton()
        self.settings_button.setObjectName("chat_settings_button")
        self.settings_button.setAccessibleName("Chat settings")
        self.settings_button.setToolTip("Chat settings (Ctrl+,)")
        self.settings_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        header = QHBoxLayout()
        header.setContentsMargins(16, 8, 12, 8)
        header.setSpacing(12)
        header.addWidget(self._private)
        header.addWidget(self._title, 1)
        header.addWidget(picker)
        header.addWidget(self.settings_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(header)
        column.addWidget(self.find_bar)
        column.addWidget(self.transcript, 1)
        column.addWidget(self.composer)
        self.show_private(False)
        self._tint()

    @property
    def title(self) -> str:
        return self._title.text()

    @property
    def is_marked_private(self) -> bool:
        return not self._private.isHidden()

    def show_private(self, is_private: bool) -> None:
        self._private.setVisible(is_private)
        if is_private:
            self.transcript.set_empty_hint(PRIVATE_TITLE, (), PRIVATE_NOTE)
        else:
            self.transcript.set_empty_hint(EMPTY_TITLE, SUGGESTIONS)

    def show_title(self, title: str) -> None:
        self._title.setText(title)
        self._title.setToolTip(plain_tool_tip(title))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _tint(self) -> None:
        self.settings_button.setIcon(tinted_icon("settings", theme_of(self.palette())))
