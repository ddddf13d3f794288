"""The button above the transcript that shows the chat's model and offers others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QSizePolicy, QToolButton, QWidget

from desktop.wording import plain_tool_tip


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One entry of the menu. note: why it stands there, e.g. "starter model"."""

    path: Path
    note: str = ""


class ModelPicker(QToolButton):
    """The menu is made anew each time it opens, so a model that has gone since is shown as gone."""

    model_chosen = Signal(object)
    """Path"""
    open_requested = Signal()

    def __init__(self, choices: Callable[[], Sequence[ModelChoice]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("model_picker")
        self.setAccessibleName("Model of this chat")
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._choices = choices
        self._current: Path | None = None
        self._menu = QMenu(self)
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self._fill_menu)
        self.setMenu(self._menu)
        self.show_model(None)

    def show_model(self, path: Path | None, *, loading: bool = False) -> None:
        self._current = path
        if path is None:
            self.setText("No model ▾")
            self.setToolTip("Choose a model (GGUF file) for this chat")
            return
        name = path.stem if path.exists() else f"{path.stem} (missing)"
        # A single & would mark a letter as a shortcut.
        name = name.replace("&", "&&")
        self.setText(f"{name} (loading…) ▾" if loading else f"{name} ▾")
        self.setToolTip(plain_tool_tip(str(path)))

    def _fill_menu(self) -> None:
        self._menu.clear()
        for choice in self._choices():
            label = f"{choice.path.stem} · {choice.note}" if choice.note else choice.path.stem
            action = self._menu.addAction(label.replace("&", "&&"))
            action.setToolTip(plain_tool_tip(str(choice.path)))
            action.setCheckable(True)
            action.setChecked(choice.path == self._current)
            action.triggered.connect(lambda _checked=False, path=choice.path: self.model_chosen.emit(path))
            if not choice.path.is_file():
                action.setText(f"{action.text()} (file is gone)")
                action.setEnabled(False)
        if not self._menu.isEmpty():
            self._menu.addSeparator()
        self._menu.addAction("Open GGUF…").triggered.connect(lambda: self.open_requested.emit())
