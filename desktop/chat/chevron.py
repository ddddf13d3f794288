"""The mark beside a line that unfolds something."""

from __future__ import annotations

from PySide6.QtCore import QPointF
from PySide6.QtGui import QPainter

from desktop.chat.transcript_style import TranscriptStyle
from desktop.icons import icon


def paint_chevron(painter: QPainter, centre: QPointF, style: TranscriptStyle, *, is_unfolded: bool) -> None:
    """Points to the right, or down to what is unfolded."""
    size = int(style.px(14))
    painter.save()
    painter.translate(centre)
    if not is_unfolded:
        painter.rotate(-90)
    icon("chevron-down", style.theme.muted).paint(painter, -size // 2, -size // 2, size, size)
    painter.restore()
