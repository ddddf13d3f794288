"""Quiet lines at the top of the window: what happened, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

NoticeKind = Literal["info", "error"]


@dataclass(frozen=True, slots=True)
class NoticeAction:
    label: str
    run: Callable[[], None]


class NoticeLine(QFrame):
    """One notice. `kind` is a dynamic property, so the theme decides how an error differs."""

    dismissed = Signal()

    def __init__(
        self,
        text: str,
        kind: NoticeKind,
        actions: Sequence[NoticeAction],
        timeout_ms: int | None,
    ) -> None:
        super().__init__()
        self.setObjectName("notice_line")
        self.setProperty("kind", kind)
        self.label = QLabel(text)
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.addWidget(self.label, 1)
        self.buttons = [QPushButton(action.label) for action in actions]
        for button, action in zip(self.buttons, actions, strict=True):
            button.clicked.connect(self.dismissed)
            button.clicked.connect(action.run)
            row.addWidget(button)
        close = QToolButton()
        close.setText("✕")
        close.setToolTip("Dismiss")
        close.setAccessibleName("Dismiss")
        close.clicked.connect(self.dismissed)
        row.addWidget(close)
        if timeout_ms is not None:
            QTimer.singleShot(timeout_ms, self, self.dismissed.emit)


class NoticeBar(QWidget):
    """A notice has a key: a new one replaces the former of the same key, and what is over can be taken back."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("notice_bar")
        self._lines: dict[str, NoticeLine] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(1)
        self.hide()

    def show_notice(
        self,
        key: str,
        text: str,
        *,
        kind: NoticeKind = "info",
        action: NoticeAction | None = None,
        other_action: NoticeAction | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """action comes first, for whoever does not want to think. timeout_ms None: it stays until it is dismissed or its cause is gone."""
        self.dismiss(key)
        line = NoticeLine(text, kind, [a for a in (action, other_action) if a is not None], timeout_ms)
        line.dismissed.connect(lambda: self._dismiss_line(key, line))
        self._lines[key] = line
        self._column.addWidget(line)
        self.show()

    def dismiss(self, key: str) -> None:
        line = self._lines.get(key)
        if line is not None:
            self._dismiss_line(key, line)

    def line(self, key: str) -> NoticeLine | None:
        return self._lines.get(key)

    def text(self, key: str) -> str:
        """What the notice says; empty if there is none of this key."""
        line = self._lines.get(key)
        return "" if line is None else line.label.text()

    def _dismiss_line(self, key: str, line: NoticeLine) -> None:
        if self._lines.get(key) is not line:
            return
        del self._lines[key]
        self._column.removeWidget(line)
        line.hide()
        line.deleteLater()
        self.setVisible(bool(self._lines))
