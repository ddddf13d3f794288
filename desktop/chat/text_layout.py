"""Text blocks: paragraphs, headings and what the user typed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Literal

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QColor,
    QFont,
    QPainter,
    QPalette,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextLine,
    QTextOption,
)

from desktop.chat.block_layout import BlockLayout, Highlight, HighlightKind
from desktop.chat.inline_runs import InlineRun, inline_runs
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.transcript_style import LINE_HEIGHT, TranscriptStyle
from desktop.theme import Theme

# Notices stand in the middle, asides at the side of what they belong to; both are small.
Tone = Literal["text", "notice", "aside"]

_HEADING_SIZES = (1.55, 1.3, 1.15, 1.0, 1.0, 0.92)


class TextBlockLayout(BlockLayout):
    """One QTextDocument."""

    def __init__(
        self, block: MarkdownBlock, style: TranscriptStyle, width: float, tone: Tone = "text"
    ) -> None:
        super().__init__(style, width)
        font = QFont(style.text_font if tone == "text" else style.small_font)
        line_height = LINE_HEIGHT
        if block.kind == "heading":
            font.setPixelSize(round(style.text_font.pixelSize() * _HEADING_SIZES[block.level - 1]))
            font.setWeight(QFont.Weight.DemiBold)
            line_height = 1.3
        if block.kind == "verbatim":
            runs = [InlineRun(block.text)]
        else:
            runs = inline_runs(block.text, block.references)
        alignment = Qt.AlignmentFlag.AlignHCenter if tone == "notice" else Qt.AlignmentFlag.AlignLeft
        self._document = text_document(
            runs,
            font,
            style,
            alignment=alignment,
            line_height=line_height,
            one_paragraph=block.kind != "verbatim",
        )
        self._colour = style.theme.text if tone == "text" else style.theme.muted
        self._document.setTextWidth(width)
        height = self._document.size().height()
        self._lead = lead_px(self._document)
        self.height = float(ceil(height - self._lead))

    @property
    def text(self) -> str:
        return document_text(self._document)

    @property
    def is_right_to_left(self) -> bool:
        return self._document.firstBlock().textDirection() == Qt.LayoutDirection.RightToLeft

    def paint(self, painter: QPainter, clip: QRectF, highlights: Sequence[Highlight]) -> None:
        painter.translate(0, -self._lead)
        clip = clip.translated(0, self._lead)
        paint_document(painter, self._document, clip, highlights, self._colour, self.style.theme)

    def position_at(self, point: QPointF) -> int:
        return document_position(self._document, point + QPointF(0, self._lead))

    def point_at(self, position: int) -> QPointF:
        return document_point(self._document, position) - QPointF(0, self._lead)

    def url_at(self, point: QPointF) -> str:
        return self._document.documentLayout().anchorAt(point + QPointF(0, self._lead))


def text_document(
    runs: Sequence[InlineRun],
    font: QFont,
    style: TranscriptStyle,
    *,
    alignment: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
    line_height: float = LINE_HEIGHT,
    one_paragraph: bool = True,
) -> QTextDocument:
    """A document of formatted runs, not yet given a width; `line_height` is a factor of the font size."""
    document = QTextDocument()
    document.setUndoRedoEnabled(False)
    document.setDocumentMargin(0)
    document.setDefaultFont(font)
    option = QTextOption(alignment)
    option.setTextDirection(Qt.LayoutDirection.LayoutDirectionAuto)
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    option.setTabStopDistance(style.px(32))
    document.setDefaultTextOption(option)
    block_format = QTextBlockFormat()
    least_height = round(font.pixelSize() * line_height)
    block_format.setLineHeight(least_height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
    cursor = QTextCursor(document)
    # One edit, or each run would lay out all runs before it again.
    cursor.beginEditBlock()
    cursor.setBlockFormat(block_format)
    for run in runs:
        # A line separator keeps a markdown paragraph together, so that it has one direction.
        text = run.text.replace("\n", "\u2028") if one_paragraph else run.text
        cursor.insertText(text, _char_format(run, font, style))
    cursor.endEditBlock()
    return document


def lead_px(document: QTextDocument) -> float:
    """What the line height adds above the first line, where a block should begin without it.

    Before the document has been measured there are no lines, and Qt crashes when asked for one.
    """
    layout = document.firstBlock().layout()
    return layout.lineAt(0).y() if layout.lineCount() else 0.0


def document_position(document: QTextDocument, point: QPointF) -> int:
    """The position nearest to a point."""
    return max(0, document.documentLayout().hitTest(point, Qt.HitTestAccuracy.FuzzyHit))


def document_point(document: QTextDocument, position: int) -> QPointF:
    """The top of the line that holds a position, and where the position lies in it; of a document with a width."""
    block = document.findBlock(min(position, document.characterCount() - 1))
    line = block.layout().lineForTextPosition(position - block.position())
    top = document.documentLayout().blockBoundingRect(block).top()
    if not line.isValid():
        return QPointF(0, top)
    return QPointF(x_in_line(line, position - block.position()), top + line.y())


def x_in_line(line: QTextLine, position: int) -> float:
    # What PySide6 gives back is (x, position), and is said to be anything.
    x: Any = line.cursorToX(position)
    return float(x[0] if isinstance(x, tuple) else x)


def highlight_format(kind: HighlightKind, theme: Theme) -> QTextCharFormat:
    back, front = {
        "match": (theme.match, theme.match_text),
        "current": (theme.current_match, theme.current_match_text),
        "selection": (theme.selection, theme.selection_text),
    }[kind]
    char_format = QTextCharFormat()
    char_format.setBackground(QColor(back))
    char_format.setForeground(QColor(front))
    return char_format


def document_text(document: QTextDocument) -> str:
    """The characters of a document, one for each position in it."""
    return document.toRawText().replace("\u2029", "\n").replace("\u2028", "\n")


def paint_document(
    painter: QPainter,
    document: QTextDocument,
    clip: QRectF,
    highlights: Sequence[Highlight],
    colour: str,
    theme: Theme,
) -> None:
    """Paints a document at the origin."""
    context = QAbstractTextDocumentLayout.PaintContext()
    context.palette.setColor(QPalette.ColorRole.Text, QColor(colour))
    context.clip = clip
    last = document.characterCount() - 1
    selections = []
    for start, end, kind in highlights:
        if start < end:
            marked = QAbstractTextDocumentLayout.Selection()
            marked.cursor = QTextCursor(document)
            marked.cursor.setPosition(min(start, last))
            marked.cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
            marked.format = highlight_format(kind, theme)
            selections.append(marked)
    context.selections = selections
    document.documentLayout().draw(painter, context)


def _char_format(run: InlineRun, font: QFont, style: TranscriptStyle) -> QTextCharFormat:
    char_format = QTextCharFormat()
    if run.bold:
        char_format.setFontWeight(QFont.Weight.Bold.value)
    if run.italic:
        char_format.setFontItalic(True)
    if run.strike:
        char_format.setFontStrikeOut(True)
    if run.code:
        char_format.setFontFamilies([style.code_font.family()])
        char_format.setFontFixedPitch(True)
        char_format.setProperty(QTextCharFormat.Property.FontPixelSize, round(font.pixelSize() * 0.92))
        char_format.setBackground(QColor(style.theme.code_page))
    if run.url:
        char_format.setAnchor(True)
        char_format.setAnchorHref(run.url)
        char_format.setForeground(QColor(style.theme.link))
        char_format.setFontUnderline(True)
    return char_format
