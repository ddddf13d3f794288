"""Our line icons, drawn in the colour that is asked for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from PySide6.QtCore import QByteArray, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from desktop.theme import Theme

_ICONS = Path(__file__).parent.parent / "resources" / "icons"
# Twice the sizes in use as well, for screens with two device pixels to the pixel.
_SIZES_PX = (16, 20, 24, 32, 40, 48, 64)


@cache
def icon(name: str, colour: str, disabled_colour: str = "") -> QIcon:
    """resources/icons/`name`.svg with its lines in `colour` ("#rrggbb")."""
    result = QIcon()
    # Selected: Qt would tint it with the selection's own colour, on which it is then not seen.
    modes = [(QIcon.Mode.Normal, colour), (QIcon.Mode.Selected, colour)]
    if disabled_colour:
        modes.append((QIcon.Mode.Disabled, disabled_colour))
    for mode, mode_colour in modes:
        for size_px in _SIZES_PX:
            result.addPixmap(_pixmap(name, mode_colour, size_px), mode)
    return result


def tinted_icon(name: str, theme: Theme) -> QIcon:
    """The icon in the theme's text colour, muted when disabled."""
    return icon(name, theme.text, theme.muted)


def app_icon() -> QIcon:
    """Everwarm's own icon, in its own colours."""
    result = QIcon()
    for size_px in (16, 24, 32, 48, 64, 128, 256):
        result.addPixmap(_pixmap("everwarm", "", size_px))
    return result


def _pixmap(name: str, colour: str, size_px: int) -> QPixmap:
    source = (_ICONS / f"{name}.svg").read_text(encoding="utf-8").replace("currentColor", colour)
    pixmap = QPixmap(size_px, size_px)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(QByteArray(source.encode())).render(painter)
    painter.end()
    return pixmap
