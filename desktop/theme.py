"""Colours of the window, light and dark, and how they reach Qt.

The palette carries most of it, so widgets of ours ask `theme_of(self.palette())` when they paint and need
not be told when the theme changes: Qt sends them a PaletteChange.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal, cast

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

ThemeChoice = Literal["system", "light", "dark"]

_THEMES = Path(__file__).parent.parent / "resources" / "themes"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as "#rrggbb"."""

    name: str
    page: str
    """Behind text that is read."""
    panel: str
    """Behind lists and bars."""
    bubble: str
    """Behind the user's messages."""
    card: str
    """Behind fields, menus and cards."""
    border: str
    text: str
    muted: str
    accent: str
    accent_text: str
    link: str
    selection: str
    selection_text: str
    match: str
    """Behind what was searched for."""
    match_text: str
    current_match: str
    """Behind the one of them that one has gone to."""
    current_match_text: str
    warning: str
    error: str
    error_card: str
    error_border: str
    reused: str
    restored: str
    prefilled: str
    decoded: str
    evicted: str
    code_page: str
    code_text: str
    code_comment: str
    code_keyword: str
    code_string: str
    code_number: str
    code_function: str
    code_type: str
    code_constant: str
    code_operator: str
    code_inserted: str
    code_deleted: str


@cache
def load_theme(name: Literal["light", "dark"]) -> Theme:
    """The theme of resources/themes/`name`.toml."""
    return Theme(**tomllib.loads((_THEMES / f"{name}.toml").read_text(encoding="utf-8")))


def theme_of(palette: QPalette) -> Theme:
    """The theme that a palette belongs to."""
    is_dark = palette.color(QPalette.ColorRole.Window).lightness() < 128
    return load_theme("dark" if is_dark else "light")


def apply_theme(app: QApplication, choice: ThemeChoice) -> Theme:
    """Sets style, palette and style sheet; with "system" they follow the system from now on."""
    follower = cast(_SystemFollower | None, app.findChild(_SystemFollower))
    if follower is None:
        follower = _SystemFollower(app)
        app.styleHints().colorSchemeChanged.connect(follower.follow)
    follower.choice = choice
    # Tells native parts (title bar, file dialog) too.
    schemes = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark, "system": Qt.ColorScheme.Unknown}
    app.styleHints().setColorScheme(schemes[choice])
    return follower.follow()


class _SystemFollower(QObject):
    """Lives as long as the application and applies the theme again when the system's changes."""

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self.choice: ThemeChoice = "system"
        self._applied: Theme | None = None

    @Slot()
    def follow(self) -> Theme:
        app = cast(QApplication, self.parent())
        name: Literal["light", "dark"]
        if self.choice == "system":
            name = "dark" if app.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"
        else:
            name = self.choice
        theme = load_theme(name)
        if theme is not self._applied:
            self._applied = theme
            app.setStyle("Fusion")
            app.setPalette(_palette(theme))
            sheet = (_THEMES / "everwarm.qss").read_text(encoding="utf-8")
            app.setStyleSheet(Template(sheet).substitute(asdict(theme)))
        return theme


def _palette(theme: Theme) -> QPalette:
    role = QPalette.ColorRole
    colours = {
        role.Window: theme.panel,
        role.WindowText: theme.text,
        role.Base: theme.page,
        role.AlternateBase: theme.panel,
        role.Text: theme.text,
        role.PlaceholderText: theme.muted,
        role.Button: theme.panel,
        role.ButtonText: theme.text,
        role.BrightText: theme.error,
        role.ToolTipBase: theme.card,
        role.ToolTipText: theme.text,
        role.Link: theme.link,
        role.LinkVisited: theme.link,
        role.Highlight: theme.selection,
        role.HighlightedText: theme.selection_text,
        role.Accent: theme.accent,
        role.Light: theme.card,
        role.Midlight: theme.border,
        role.Mid: theme.border,
        role.Dark: theme.muted,
        role.Shadow: theme.border,
    }
    palette = QPalette()
    for colour_role, colour in colours.items():
        palette.setColor(colour_role, QColor(colour))
    disabled = QPalette.ColorGroup.Disabled
    for colour_role in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(disabled, colour_role, QColor(theme.muted))
    return palette
