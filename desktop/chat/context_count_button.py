"""The token count beside the composer: what the chat with the draft would take of the context, and the chat's choice."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from desktop.conversations import ContextChoice
from desktop.quantities import format_count
from desktop.theme import Theme
from inference import ContextFit

NEAR_FULL = 0.85
CHOICES = {
    ContextChoice.ASK: "Ask what to do",
    ContextChoice.DROP_OLDEST: "Leave out the oldest turns",
    ContextChoice.STOP: "Refuse the message",
}


def count_words(fit: ContextFit) -> str:
    """E.g. "1,204 of 8,192 tokens"; what is wrong is said, not only coloured."""
    shown = fit.num_sent_tokens if fit.is_allowed else fit.num_prompt_tokens
    words = f"{format_count(shown)} of {format_count(fit.n_ctx)} tokens"
    if not fit.is_allowed:
        return f"{words}: too long"
    return f"{words}, nearly full" if shown >= NEAR_FULL * fit.n_ctx else words


def count_details(fit: ContextFit) -> str:
    """What would happen if it were sent now."""
    count = len(fit.left_out)
    messages = "the oldest message" if count == 1 else f"the {format_count(count)} oldest messages"
    if fit.is_allowed and count:
        return f"Sent without {messages}, which the model does not see. With them it is {format_count(fit.num_prompt_tokens)} tokens."
    if fit.is_allowed:
        return "The whole chat and what you are typing, as the model reads it."
    if fit.is_possible and count:
        return f"It does not fit. Without {messages} it would be {format_count(fit.num_sent_tokens)} tokens."
    return "It does not fit, whatever is left out: shorten it, or choose a larger context."


class ContextCountButton(QToolButton):
    """Opens a menu of what happens when the chat does not fit any more."""

    choice_made = Signal(object)
    """ContextChoice"""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("contextCount")
        self.setAccessibleName("Context")
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        menu = QMenu(self)
        menu.addSection("When the chat is longer than the context")
        group = QActionGroup(self)
        self._actions: dict[ContextChoice, QAction] = {}
        for choice, label in CHOICES.items():
            action = menu.addAction(label)
            action.setCheckable(True)
            action.triggered.connect(lambda _checked, chosen=choice: self.choice_made.emit(chosen))
            group.addAction(action)
            self._actions[choice] = action
        self.setMenu(menu)
        self._fit: ContextFit | None = None
        self._theme: Theme | None = None
        self.show_choice(ContextChoice.ASK)
        self.show_fit(None)

    def show_choice(self, choice: ContextChoice) -> None:
        self._actions[choice].setChecked(True)

    def show_fit(self, fit: ContextFit | None) -> None:
        """None: it is not known, and nothing is shown."""
        self._fit = fit
        self.setVisible(fit is not None)
        if fit is not None:
            self.setText(count_words(fit))
            self.setToolTip(count_details(fit))
            self.setAccessibleName(f"Context: {count_words(fit)}")
            self.setAccessibleDescription(count_details(fit))
        if self._theme is not None:
            self.restyle(self._theme)

    def restyle(self, theme: Theme) -> None:
        """To be told by whoever it stands in: its own palette, made transparent, tells no theme."""
        self._theme = theme
        fit, colour = self._fit, theme.muted
        if fit is not None and not fit.is_allowed:
            colour = theme.error
        elif fit is not None and fit.num_sent_tokens >= NEAR_FULL * fit.n_ctx:
            colour = theme.warning
        self.setStyleSheet(
            f"#contextCount {{ background: transparent; color: {colour}; border: 2px solid transparent;"
            " border-radius: 6px; padding: 4px 6px; font-size: 12px; }"
            f"#contextCount:hover {{ background: {theme.bubble}; }}"
            f"#contextCount:focus {{ border-color: {theme.link}; }}"
            "#contextCount::menu-indicator { image: none; width: 0; }"
        )
