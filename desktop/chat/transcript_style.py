"""Fonts, colours and distances of the transcript, for one theme, font size and width."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QFont, QFontDatabase, QFontMetricsF

from desktop.theme import Theme

BASE_FONT_PX = 15
LINE_HEIGHT = 1.6
"""Of running text, as a factor of the font size."""
COLUMN_CHARACTERS = 75
_SAMPLE = "the five boxing wizards jump quickly at dawn, and nobody minds it"


@dataclass(frozen=True)
class TranscriptStyle:
    """Distances are in pixels, and grow with the font."""

    theme: Theme
    scale: float
    column_width: float
    text_font: QFont
    small_font: QFont
    code_font: QFont
    line_height: float
    code_line_height: float
    characters_per_line: float
    """Of the full column, for estimates."""

    def px(self, distance: float) -> float:
        """A distance given for the base font size, rounded to whole pixels."""
        return float(round(distance * self.scale))


def transcript_style(theme: Theme, font: QFont, scale: float, available_width: float) -> TranscriptStyle:
    """The style for a viewport `available_width` pixels wide; `font` gives the family."""
    text_font = _sized(font, BASE_FONT_PX * scale)
    code_font = _sized(
        QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont), BASE_FONT_PX * 0.9 * scale
    )
    code_font.setStyleHint(QFont.StyleHint.Monospace)
    metrics = QFontMetricsF(text_font)
    character_width = metrics.horizontalAdvance(_SAMPLE) / len(_SAMPLE)
    margin = 24 * scale if available_width > 480 * scale else 12 * scale
    column_width = max(120.0, min(COLUMN_CHARACTERS * character_width, available_width - 2 * margin))
    return TranscriptStyle(
        theme=theme,
        scale=scale,
        column_width=float(int(column_width)),
        text_font=text_font,
        small_font=_sized(font, 12.5 * scale),
        code_font=code_font,
        line_height=max(metrics.lineSpacing(), text_font.pixelSize() * LINE_HEIGHT),
        code_line_height=float(round(QFontMetricsF(code_font).lineSpacing() * 1.25)),
        characters_per_line=column_width / character_width,
    )


def _sized(font: QFont, size_px: float) -> QFont:
    sized = QFont(font)
    sized.setPixelSize(max(8, round(size_px)))
    return sized
