"""A grammar or a JSON schema that replies follow, checked while it is typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QTimer, Signal

from desktop.chat.sampling_layers import FORMS, LayeredValue
from desktop.chat_settings.editors import QuietComboBox, TextBox
from desktop.chat_settings.setting_row import SettingRow
from inference import SamplingParams

CHECK_PAUSE_MS = 300
_WORDS = {"grammar": "GBNF grammar", "json_schema": "JSON schema"}
_EXAMPLES = {
    "grammar": 'root ::= "yes" | "no"',
    "json_schema": '{"type": "object", "properties": {"name": {"type": "string"}}}',
}
_NONE = "none"


class FormRow(SettingRow):
    """`edited` gives both of FORMS by name, once what was typed has been found good."""

    check_wanted = Signal(object)
    """SamplingParams; the answer goes to show_verdict."""

    def __init__(self) -> None:
        super().__init__("Form of the reply", "Replies hold nothing that does not fit it.")
        self.kind_box = QuietComboBox()
        self.kind_box.activated.connect(self._choose_kind)
        self.place(self.kind_box)
        self.text_box = TextBox(lines=6, is_code=True)
        self.text_box.setAccessibleName("Grammar or JSON schema")
        self.text_box.hide()
        self._grid.addWidget(self.text_box, 1, 0, 1, 3)
        self._pause = QTimer(self, singleShot=True, interval=CHECK_PAUSE_MS)
        self._pause.timeout.connect(self.check)
        self.text_box.textChanged.connect(self._typed)
        self._is_showing = False

    @property
    def kind(self) -> str | None:
        """One of FORMS, _NONE, or None: what is inherited."""
        kind: str | None = self.kind_box.currentData()
        return kind

    def show_form(
        self, chat: Mapping[str, Any], inherited: Mapping[str, LayeredValue], *, is_other_chat: bool
    ) -> None:
        is_set = any(name in chat for name in FORMS)
        own = next((name for name in FORMS if chat.get(name)), _NONE if is_set else None)
        from_settings = next((name for name in FORMS if inherited[name].value), None)
        if is_other_chat or (self.kind != own and not self.is_unsettled):
            self._pause.stop()
            self.show_error("")
            self._fill(from_settings)
            self.kind_box.setCurrentIndex(max(0, self.kind_box.findData(own)) if own else 0)
            self._show_text(chat.get(own) or "" if own in FORMS else "")
        elsewhere = "none" if from_settings is None else f"{_WORDS[from_settings]}, from settings"
        self.show_origin(f"this chat; else {elsewhere}" if is_set else elsewhere, is_set=is_set)

    @property
    def is_unsettled(self) -> bool:
        """A kind was chosen or a text typed that is not in force (yet)."""
        return bool(self.error) or self._pause.isActive() or (self.kind in FORMS and not self._text())

    def check(self) -> None:
        """Ask for the verdict on what stands there now."""
        self._pause.stop()
        params = self._params()
        if params is not None:
            self.check_wanted.emit(params)

    def show_verdict(self, checked: SamplingParams, problem: str | None) -> None:
        """Of something that has been typed over since, nothing is said."""
        if self._params(quietly=True) != checked:
            return
        if problem is not None:
            self.show_error(f"Not used: {problem}.")
            return
        self.show_error("")
        self.edited.emit({name: getattr(checked, name) for name in FORMS})

    def _fill(self, from_settings: str | None) -> None:
        self.kind_box.clear()
        self.kind_box.addItem("none" if from_settings is None else "from settings", None)
        for name, words in _WORDS.items():
            self.kind_box.addItem(words, name)
        if from_settings is not None:
            self.kind_box.addItem("none", _NONE)

    def _show_text(self, text: str) -> None:
        self._is_showing = True
        self.text_box.setText(text)
        self._is_showing = False
        self.text_box.setVisible(self.kind in FORMS)
        self.text_box.setPlaceholderText(_EXAMPLES.get(self.kind or "", ""))

    def _choose_kind(self) -> None:
        self._pause.stop()
        self.show_error("")
        self._show_text("")
        if self.kind is None:
            self.reset.emit()
        elif self.kind == _NONE:
            self.edited.emit(dict.fromkeys(FORMS))
        else:
            self.text_box.setFocus()

    def _typed(self) -> None:
        if self._is_showing:
            return
        if self._text():
            self._pause.start()
        else:
            self._pause.stop()
            self.show_error("")

    def _text(self) -> str:
        return self.text_box.text().strip()

    def _params(self, *, quietly: bool = False) -> SamplingParams | None:
        if self.kind not in FORMS or not self._text():
            return None
        try:
            return SamplingParams(**{str(self.kind): self._text()})  # type: ignore[arg-type]
        except ValueError as error:
            if not quietly:
                self.show_error(f"Not used: {error}.")
            return None
