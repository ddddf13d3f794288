"""Something in the transcript to click or to reach with Tab: a painted button."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from desktop.chat.transcript_style import TranscriptStyle
from desktop.icons import icon


@dataclass(frozen=True, slots=True)
class HotSpot:
    rect: QRectF
    kind: Literal["copy", "action", "suggestion", "details", "reasoning"]
    value: str
    label: str


def moved_spots(spots: Iterable[HotSpot], by: QPointF) -> list[HotSpot]:
    return [replace(spot, rect=spot.rect.translated(by)) for spot in spots]


def paint_hot_spot(
    painter: QPainter, spot: HotSpot, style: TranscriptStyle, *, hovered: bool, focused: bool, copied: bool
) -> None:
    """Paints the button; `copied` says that its code has just been copied."""
    theme, rect = style.theme, spot.rect
    if spot.kind in ("details", "reasoning"):
        # The line itself is the message's; here it is only framed.
        if hovered or focused:
            painter.setPen(QColor(theme.accent if focused else theme.border))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        return
    is_copy = spot.kind == "copy"
    radius = 10.0 if spot.kind == "suggestion" else 6.0
    if focused:
        painter.setPen(QColor(theme.accent))
    elif is_copy:
        painter.setPen(Qt.PenStyle.NoPen)
    else:
        painter.setPen(QColor(theme.muted if hovered else theme.border))
    fill = theme.panel if hovered and not is_copy else theme.card
    painter.setBrush(Qt.BrushStyle.NoBrush if is_copy else QColor(fill))
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
    colour = theme.text if hovered or focused or not is_copy else theme.muted
    painter.setPen(QColor(colour))
    if spot.kind == "suggestion":
        painter.setFont(style.text_font)
        inner = rect.adjusted(style.px(16), 0, -style.px(16), 0)
        text = QFontMetricsF(style.text_font).elidedText(
            spot.label, Qt.TextElideMode.ElideRight, inner.width()
        )
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, text)
        return
    painter.setFont(style.small_font)
    if not is_copy:
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, spot.label)
        return
    size = int(style.px(14))
    icon_left, icon_top = int(rect.left() + style.px(8)), int(rect.center().y() - size / 2)
    icon("check" if copied else "copy", colour).paint(painter, icon_left, icon_top, size, size)
    label = rect.adjusted(style.px(27), 0, 0, 0)
    painter.drawText(label, Qt.AlignmentFlag.AlignVCenter, "Copied" if copied else spot.label)
