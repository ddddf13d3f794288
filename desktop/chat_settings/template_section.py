"""Which format a chat is written in for the model, and what the format itself can be told."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from desktop.chat.template_words import source_words
from desktop.chat_settings.editors import ChoiceRow
from desktop.wording import as_sentence
from inference import OptionValue, TemplateInfo, TemplateOption

_OPTION_WORDS = {
    "enable_thinking": ("Thinking", "Whether the model reasons before it answers."),
    "thinking": ("Thinking", "Whether the model reasons before it answers."),
    "preserve_thinking": ("Keep earlier thinking", "Whether it still sees how it reasoned before."),
    "preserved_thinking": ("Keep earlier thinking", "Whether it still sees how it reasoned before."),
    "clear_thinking": ("Drop earlier thinking", "Whether it no longer sees how it reasoned before."),
    "reasoning_effort": ("Reasoning effort", "How long the model reasons before it answers."),
    "think_render_option": ("Shown thinking", "Whose reasoning the model still sees."),
    "thinking_budget": ("Thinking budget", "Tokens that it may reason for."),
}
NO_MODEL_NOTE = "What there is to choose is known once the model is loaded."


class TemplateSection(QWidget):
    template_chosen = Signal(object)
    """str, or None: whatever fits best."""
    options_chosen = Signal(object)
    """All that the chat sets, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.template_row = ChoiceRow(
            "Format", "The chat template: how messages are written down for the model.", is_wide=True
        )
        self.template_row.edited.connect(self.template_chosen)
        self.template_row.reset.connect(lambda: self.template_chosen.emit(None))
        self.note = QLabel()
        self.note.setObjectName("setting_note")
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setWordWrap(True)
        self.option_rows: dict[str, ChoiceRow] = {}
        self._options: Mapping[str, OptionValue] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self._column.addWidget(self.template_row)
        self._column.addWidget(self.note)

    def show_template(
        self,
        info: TemplateInfo | None,
        chosen: str | None,
        default: str | None,
        options: Mapping[str, OptionValue],
    ) -> None:
        """info None: the model is not loaded. default: what the settings say for this model."""
        self._options = options
        choices = [] if info is None else list(info.choices)
        if chosen is not None and chosen not in choices:
            choices.append(chosen)
        self.template_row.show_choices(
            _automatic(info) if default is None else f"From settings: {source_words(default)}",
            [(source, _choice_words(source, info)) for source in choices],
            chosen,
        )
        self.template_row.editor.setEnabled(info is not None or chosen is not None)
        self.template_row.show_origin("this chat" if chosen is not None else "", is_set=chosen is not None)
        self.note.setText(_note(info, chosen or default))
        self.note.setVisible(bool(self.note.text()))
        self._show_options(() if info is None else info.options_of(chosen or default))

    def _show_options(self, known: tuple[TemplateOption, ...]) -> None:
        if [option.name for option in known] != list(self.option_rows):
            for row in self.option_rows.values():
                self._column.removeWidget(row)
                row.hide()
                row.deleteLater()
            self.option_rows = {option.name: self._option_row(option.name) for option in known}
        for option in known:
            row, own = self.option_rows[option.name], self._options.get(option.name)
            row.show_choices("automatic", [(value, _value_words(value)) for value in option.values], own)
            row.show_origin("this chat" if own is not None else "", is_set=own is not None)

    def _option_row(self, name: str) -> ChoiceRow:
        label, hint = _OPTION_WORDS.get(name, (name, ""))
        row = ChoiceRow(label, hint)
        row.edited.connect(lambda value: self.options_chosen.emit({**self._options, name: value}))
        row.reset.connect(
            lambda: self.options_chosen.emit(
                {other: value for other, value in self._options.items() if other != name}
            )
        )
        self._column.addWidget(row)
        return row


def _automatic(info: TemplateInfo | None) -> str:
    if info is None:
        return "Automatic"
    return f"Automatic: {source_words(info.source)}" if info.source is not None else "None fits: choose one"


def _choice_words(source: str, info: TemplateInfo | None) -> str:
    words = source_words(source)
    is_known = info is None or source in info.choices
    return words[0].upper() + words[1:] if is_known else f"{words} (not of this model)"


def _note(info: TemplateInfo | None, chosen: str | None) -> str:
    if info is None:
        return NO_MODEL_NOTE
    if chosen is not None:
        return "" if chosen in info.choices else "This model has no such format: choose another one."
    return as_sentence(info.reason or "")


def _value_words(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
