"""Where the lines of a code block stand."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from desktop.chat.code_layout import CodeLayout
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.transcript_style import transcript_style
from desktop.theme import load_theme


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_the_last_line_keeps_its_distance_from_the_border(qtbot: QtBot, scale: float) -> None:
    style = transcript_style(load_theme("light"), QApplication.font(), scale, 600)
    code = CodeLayout(MarkdownBlock("code", "first\nlast jgp", language=""), style, 400)
    image = QImage(400, int(code.height), QImage.Format.Format_RGB32)
    image.fill(QColor(style.theme.code_page))
    painter = QPainter(image)
    code.paint(painter, QRectF(0, 0, 400, code.height), ())
    painter.end()
    pixels = np.frombuffer(image.constBits(), dtype=np.uint32).reshape(image.height(), -1)
    inside = pixels[int(style.px(30)) : -2, 10:-10]  # without the rounded corners
    written = np.flatnonzero((inside != inside[0, 0]).any(axis=1))
    above, below = written[0], len(inside) - 1 - written[-1]
    assert below >= style.px(8)
    assert above <= style.px(8)
