"""Code blocks: lines are laid out only while they are painted, so length costs nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QTextCharFormat,
    QTextLayout,
    QTextOption,
)

from desktop.chat.block_layout import BlockLayout, Highlight
from desktop.chat.code_highlight import CodeHighlighter
from desktop.chat.hot_spot import HotSpot
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.text_layout import highlight_format, x_in_line
from desktop.chat.transcript_style import TranscriptStyle
from desktop.chat.utf16 import utf16_length

_TAB_CHARACTERS = 4
_UNBOUNDED = 1e7


class CodeLayout(BlockLayout):
    """`previous` is the layout of the same code with fewer characters: what it found out is kept."""

    def __init__(
        self, block: MarkdownBlock, style: TranscriptStyle, width: float, previous: CodeLayout | None = None
    ) -> None:
        super().__init__(style, width)
        self._block = block
        self._pad = style.px(12)
        self._header_height = style.px(30)
        self._character_width = QFontMetricsF(style.code_font).horizontalAdvance("x")
        goes_on = (
            previous is not None
            and previous._block.language == block.language
            and block.text.startswith(previous._block.text)
        )
        self._lines: list[str] = []
        self._starts: list[int] = []
        self._widest = 0.0
        self._highlighter = CodeHighlighter(block.language)
        if previous is not None and goes_on:
            self._highlighter = previous._highlighter
            if previous.style is style:
                # All but the last line, which may have grown.
                self._lines, self._starts = previous._lines[:-1], previous._starts[:-1]
                self._widest = previous._widest
        self._add_lines()
        self._highlighter.update(self._lines, len(block.text), block.closed)
        self.content_width = self._widest + 2 * self._pad
        scroll_room = style.px(8) if self.max_scroll_x else 0
        self._body_height = len(self._lines) * style.code_line_height
        self.height = self._header_height + self._body_height + self._pad + scroll_room
        if previous is not None and goes_on:
            self.scroll_by(previous.scroll_x)

    def _add_lines(self) -> None:
        text = self._block.text
        kept = sum(map(len, self._lines)) + len(self._lines)
        start = self._starts[-1] + utf16_length(self._lines[-1]) + 1 if self._lines else 0
        metrics = QFontMetricsF(self.style.code_font)
        for line in text[kept:].split("\n"):
            self._lines.append(line)
            self._starts.append(start)
            start += utf16_length(line) + 1
            if line.isascii():
                line_width = len(line.expandtabs(_TAB_CHARACTERS)) * self._character_width
            else:
                line_width = metrics.horizontalAdvance(line.expandtabs(_TAB_CHARACTERS))
            self._widest = max(self._widest, line_width)

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def finish(self) -> None:
        self._highlighter.update(self._lines, len(self._block.text), complete=True)

    def hot_spots(self) -> list[HotSpot]:
        spot_width = QFontMetricsF(self.style.small_font).horizontalAdvance("Copied") + self.style.px(34)
        rect = QRectF(self.width - spot_width - 3, 3, spot_width, self._header_height - 4)
        return [HotSpot(rect, "copy", self._block.text, "Copy")]

    def paint(self, painter: QPainter, clip: QRectF, highlights: Sequence[Highlight]) -> None:
        theme = self.style.theme
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        painter.setPen(QColor(theme.border))
        painter.setBrush(QColor(theme.code_page))
        painter.drawRoundedRect(frame, 8, 8)
        painter.setPen(QColor(theme.muted))
        painter.setFont(self.style.small_font)
        label = QRectF(self._pad, 1, self.width / 2, self._header_height)
        painter.drawText(label, Qt.AlignmentFlag.AlignVCenter, self._block.language or "text")
        painter.save()
        outline = QPainterPath()
        outline.addRoundedRect(frame, 8, 8)
        painter.setClipPath(outline, Qt.ClipOperation.IntersectClip)
        line_height = self.style.code_line_height
        first = max(0, int((clip.top() - self._header_height) / line_height))
        last = min(len(self._lines), int((clip.bottom() - self._header_height) / line_height) + 1)
        for line in range(first, last):
            origin = QPointF(self._pad - self.scroll_x, self._header_height + line * line_height)
            self._paint_line(painter, line, origin, highlights)
        self.paint_scroll_thumb(painter)
        painter.restore()

    def _paint_line(
        self, painter: QPainter, line: int, origin: QPointF, highlights: Sequence[Highlight]
    ) -> None:
        theme = self.style.theme
        text = self._lines[line]
        formats = []
        for start, length, colour in self._highlighter.spans(line):
            coloured = QTextCharFormat()
            coloured.setForeground(QColor(getattr(theme, colour)))
            first = utf16_length(text[:start])
            formats.append(_format_range(first, utf16_length(text[start : start + length]), coloured))
        layout = self._line_layout(line, formats)
        selected = []
        length = utf16_length(text) if highlights else 0
        for first, last, kind in highlights:
            start = max(0, first - self._starts[line])
            end = min(length, last - self._starts[line])
            if start < end:
                selected.append(_format_range(start, end - start, highlight_format(kind, theme)))
        painter.setPen(QColor(theme.code_text))
        layout.draw(painter, origin, selected)

    def _line_layout(self, line: int, formats: list[QTextLayout.FormatRange] | None = None) -> QTextLayout:
        layout = QTextLayout(self._lines[line], QFont(self.style.code_font))
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        option.setTabStopDistance(_TAB_CHARACTERS * self._character_width)
        layout.setTextOption(option)
        layout.setFormats(formats or [])
        layout.beginLayout()
        text_line = layout.createLine()
        # Before it has a width, a line has no height either.
        text_line.setLineWidth(_UNBOUNDED)
        text_line.setPosition(QPointF(0, (self.style.code_line_height - text_line.height()) / 2))
        layout.endLayout()
        return layout

    def point_at(self, position: int) -> QPointF:
        line = max(0, bisect_right(self._starts, position) - 1)
        # A line without its layout crashes Qt.
        layout = self._line_layout(line)
        left = self._pad + x_in_line(layout.lineAt(0), position - self._starts[line])
        return QPointF(left, self._header_height + line * self.style.code_line_height)

    def position_at(self, point: QPointF) -> int:
        line = int((point.y() - self._header_height) / self.style.code_line_height)
        if point.y() < self._header_height:
            return 0
        if line >= len(self._lines):
            return self._starts[-1] + utf16_length(self._lines[-1])
        layout = self._line_layout(line)
        return self._starts[line] + layout.lineAt(0).xToCursor(point.x() - self._pad + self.scroll_x)


def _format_range(start: int, length: int, char_format: QTextCharFormat) -> QTextLayout.FormatRange:
    result = QTextLayout.FormatRange()
    result.start, result.length, result.format = start, length, char_format
    return result
