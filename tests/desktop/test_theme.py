"""Colours are read from files, can be read by people and reach the application."""

import re
from dataclasses import asdict

import pytest
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

from desktop.icons import app_icon, icon, tinted_icon
from desktop.theme import Theme, apply_theme, load_theme, theme_of

THEMES = [load_theme("light"), load_theme("dark")]
SURFACES = ["page", "panel", "bubble", "card"]
GAUGE_SURFACES = ["page", "panel", "card"]
TEXT_ON = {
    **dict.fromkeys(("text", "muted", "link", "accent", "warning", "error"), SURFACES),
    **dict.fromkeys(("reused", "restored", "prefilled", "decoded", "evicted"), GAUGE_SURFACES),
    "accent_text": ["accent"],
    "selection_text": ["selection"],
    "match_text": ["match"],
    "current_match_text": ["current_match"],
}
CODE = [name for name in asdict(THEMES[0]) if name.startswith("code_") and name != "code_page"]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture
def themed_app(qapp: QApplication):
    yield qapp
    apply_theme(qapp, "light")


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("name", TEXT_ON)
def test_text_has_aa_contrast_on_every_surface_it_is_used_on(theme: Theme, name: str) -> None:
    for surface in TEXT_ON[name]:
        assert contrast(getattr(theme, name), getattr(theme, surface)) >= 4.5, surface


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("name", CODE)
def test_code_has_aa_contrast_plain_and_selected(theme: Theme, name: str) -> None:
    assert contrast(getattr(theme, name), theme.code_page) >= 4.5
    assert contrast(theme.selection_text, theme.selection) >= 4.5


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_error_card_can_be_read(theme: Theme) -> None:
    assert contrast(theme.text, theme.error_card) >= 4.5
    assert contrast(theme.error, theme.error_card) >= 4.5


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_colour_is_a_plain_hex_colour(theme: Theme) -> None:
    colours = {name: value for name, value in asdict(theme).items() if name != "name"}
    assert [name for name, value in colours.items() if not re.fullmatch("#[0-9a-f]{6}", value)] == []


@pytest.mark.parametrize("choice", ["light", "dark"])
def test_an_explicit_choice_reaches_the_palette(themed_app: QApplication, choice) -> None:
    theme = apply_theme(themed_app, choice)
    palette = themed_app.palette()
    assert theme.name == choice
    assert palette.color(QPalette.ColorRole.Text) == QColor(theme.text)
    assert theme_of(palette) is theme


def test_the_system_choice_takes_what_the_system_says(themed_app: QApplication) -> None:
    apply_theme(themed_app, "dark")
    # The offscreen platform has no colour scheme, which counts as light.
    assert apply_theme(themed_app, "system").name == "light"


def test_icons_take_the_colour_they_are_asked_for(qapp: QApplication) -> None:
    image = icon("stop", "#ff0000").pixmap(24, 24).toImage()
    assert image.pixelColor(image.width() // 2, image.height() // 2) == QColor("#ff0000")


@pytest.mark.parametrize(
    "name",
    ["send", "stop", "new-chat", "rename", "delete", "copy", "check", "arrow-down", "warning", "search"],
)
def test_every_icon_draws_something(qapp: QApplication, name: str) -> None:
    image = tinted_icon(name, THEMES[0]).pixmap(24, 24).toImage()
    assert any(image.pixelColor(x, y).alpha() > 0 for x in range(24) for y in range(24))


def test_the_application_has_an_icon_in_every_size(qapp: QApplication) -> None:
    assert {size.width() for size in app_icon().availableSizes()} >= {16, 32, 48, 256}
