"""The panel beside the transcript: what the open chat sets for its next replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop.chat.sampling_layers import FORMS, layered_value
from desktop.chat_settings.editors import ChoiceRow, TextBox, TypedRow
from desktop.chat_settings.form_row import FormRow
from desktop.chat_settings.sampling_fields import MORE, NUMBERS_FIRST, SamplingField
from desktop.chat_settings.setting_row import SettingRow
from desktop.chat_settings.template_section import TemplateSection
from desktop.chat_settings.value_text import origin_words, shown_value
from desktop.conversations import ChatSettings
from desktop.icons import tinted_icon
from desktop.theme import theme_of
from inference import ModelInfo, SamplingParams

WIDTH_PX = 328
READ_AGAIN_NOTE = "A change makes the model read this chat once more, from its beginning."


class SystemPromptRow(SettingRow):
    def __init__(self) -> None:
        super().__init__("System prompt", "Stands before all messages of the chat.")
        self.editor = TextBox(lines=5)
        self.editor.setPlaceholderText("What the model should know or keep to in this chat")
        self._is_showing = False
        self.editor.textChanged.connect(self._take)
        self.reset_button.clicked.connect(lambda: self.show_prompt("", has_messages=False))
        self.place(self.editor, is_wide=True)

    def show_prompt(self, prompt: str, *, has_messages: bool) -> None:
        if self.editor.text() != prompt:
            self._is_showing = True
            self.editor.setText(prompt)
            self._is_showing = False
        self.show_origin(READ_AGAIN_NOTE if has_messages else "", is_set=bool(prompt))

    def _take(self) -> None:
        if not self._is_showing:
            self.edited.emit(self.editor.text())


class ChatSettingsPanel(QFrame):
    """Shows what it is given by show_settings; every edit is told as the chat's whole new settings."""

    changed = Signal(object)
    """ChatSettings"""
    use_for_new_chats_requested = Signal()
    check_wanted = Signal(object)
    """SamplingParams with a grammar or a JSON schema; the answer goes to form_row.show_verdict."""
    close_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("chat_settings_panel")
        self.settings = ChatSettings()
        self.system_prompt = SystemPromptRow()
        self.system_prompt.edited.connect(lambda text: self._change(system_prompt=text))
        self.system_prompt.reset.connect(lambda: self._change(system_prompt=""))
        self.template_section = TemplateSection()
        self.template_section.template_chosen.connect(lambda source: self._change(template=source))
        self.template_section.options_chosen.connect(lambda options: self._change(template_options=options))
        self.rows: dict[str, TypedRow | ChoiceRow] = {}
        self._fields: dict[str, SamplingField] = {}
        self.form_row = FormRow()
        self.form_row.check_wanted.connect(self.check_wanted)
        self.form_row.edited.connect(lambda forms: self._set_sampling(forms))
        self.form_row.reset.connect(lambda: self._unset_sampling(*FORMS))
        self.more_button = self._button("More", self._toggle_more)
        self.more_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.more_button.setCheckable(True)
        self.close_button = self._button("", self.close_requested.emit)
        self.close_button.setText("✕")
        self.close_button.setToolTip("Close (Ctrl+,)")
        self.close_button.setAccessibleName("Close chat settings")
        self.new_chats_button = QPushButton("Use for new chats")
        self.new_chats_button.setToolTip(
            "Keep this chat's sampling values, and its format for this model, in the settings: "
            "for every chat that does not set its own"
        )
        self.new_chats_button.clicked.connect(self.use_for_new_chats_requested)
        self._more = QWidget()
        self._more.hide()
        self._fill()
        self.setFixedWidth(WIDTH_PX)
        self._tint()

    def show_settings(
        self,
        settings: ChatSettings,
        defaults: SamplingParams,
        model: ModelInfo | None,
        *,
        default_template: str | None,
        has_messages: bool,
        is_other_chat: bool,
    ) -> None:
        """model None: the chat's model is not loaded. is_other_chat: what was typed and refused is gone."""
        self.settings = settings
        self.system_prompt.show_prompt(settings.system_prompt, has_messages=has_messages)
        template = None if model is None else model.template
        self.template_section.show_template(
            template, settings.template, default_template, settings.template_options
        )
        for name, row in self.rows.items():
            inherited = layered_value(name, {}, defaults, model)
            is_set, own = name in settings.sampling, settings.sampling.get(name)
            if isinstance(row, TypedRow):
                row.show_value(own, inherited, is_set=is_set, is_other_chat=is_other_chat)
                continue
            field = self._fields[name]
            row.show_choices(f"automatic ({shown_value(field, inherited.value)})", field.words, own)
            row.show_origin(origin_words(field, inherited, is_set=is_set), is_set=is_set)
        forms = {name: layered_value(name, {}, defaults, model) for name in FORMS}
        self.form_row.show_form(settings.sampling, forms, is_other_chat=is_other_chat)
        self.new_chats_button.setEnabled(bool(settings.sampling or settings.template))

    def show_format(self) -> None:
        """Whoever came to choose a format is led to it."""
        self._scroll_area.ensureWidgetVisible(self.template_section)
        self.template_section.template_row.editor.setFocus()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._tint()

    def _fill(self) -> None:
        title = QLabel("Chat settings")
        title.setObjectName("chat_title")
        header = QHBoxLayout()
        header.setContentsMargins(16, 8, 8, 8)
        header.addWidget(title, 1)
        header.addWidget(self.close_button)
        content = QWidget()
        content.setObjectName("chat_settings_content")
        column = QVBoxLayout(content)
        column.setContentsMargins(16, 0, 12, 12)
        column.setSpacing(4)
        column.addWidget(self.system_prompt)
        column.addWidget(self.template_section)
        self._add_fields(column, "Sampling", NUMBERS_FIRST)
        column.addWidget(self.more_button)
        more = QVBoxLayout(self._more)
        more.setContentsMargins(0, 0, 0, 0)
        more.setSpacing(4)
        for heading, fields in MORE:
            self._add_fields(more, heading, fields)
        more.addWidget(self.form_row)
        column.addWidget(self._more)
        column.addStretch(1)
        self._scroll_area = QScrollArea()
        self._scroll_area.setWidget(content)
        self._scroll_area.setWidgetResizable(True)
        self._scroll_area.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        note = QLabel("Holds from the next reply on.")
        note.setObjectName("setting_note")
        footer = QHBoxLayout()
        footer.setContentsMargins(16, 8, 12, 8)
        footer.addWidget(note, 1)
        footer.addWidget(self.new_chats_button)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(header)
        outer.addWidget(self._scroll_area, 1)
        outer.addLayout(footer)

    def _add_fields(self, column: QVBoxLayout, heading: str, fields: Sequence[SamplingField]) -> None:
        label = QLabel(heading)
        label.setObjectName("setting_heading")
        label.setIndent(0)
        column.addWidget(label)
        for field in fields:
            row: TypedRow | ChoiceRow
            row = ChoiceRow(field.label, field.hint) if field.kind == "choice" else TypedRow(field)
            row.edited.connect(lambda value, name=field.name: self._set_sampling({name: value}))
            row.reset.connect(lambda name=field.name: self._unset_sampling(name))
            self.rows[field.name], self._fields[field.name] = row, field
            column.addWidget(row)

    def _button(self, text: str, run: Callable[[], object]) -> QToolButton:
        button = QToolButton()
        button.setText(text)
        button.clicked.connect(lambda _checked=False: run())
        return button

    def _toggle_more(self) -> None:
        self._more.setVisible(self.more_button.isChecked())
        self._tint()

    def _set_sampling(self, values: dict[str, Any]) -> None:
        self._change(sampling={**self.settings.sampling, **values})

    def _unset_sampling(self, *names: str) -> None:
        kept = {name: value for name, value in self.settings.sampling.items() if name not in names}
        self._change(sampling=kept)

    def _change(self, **changes: Any) -> None:
        settings = replace(self.settings, **changes)
        if settings != self.settings:
            self.settings = settings
            self.changed.emit(settings)

    def _tint(self) -> None:
        name = "chevron-down" if self.more_button.isChecked() else "chevron-right"
        self.more_button.setIcon(tinted_icon(name, theme_of(self.palette())))
