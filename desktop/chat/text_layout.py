"""Text blocks: paragraphs, headings and what the user typed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

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
    QTextOption,
)

from desktop.chat.block_layout import BlockLayout, Span
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

    def paint(self, painter: QPainter, clip: QRectF, selection: Span | None) -> None:
        painter.translate(0, -self._lead)
        clip = clip.translated(0, self._lead)
        paint_document(painter, self._document, clip, selection, self._colour, self.style.theme)

    def position_at(self, point: QPointF) -> int:
        return document_position(self._document, point + QPointF(0, self._lead))

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


def document_text(document: QTextDocument) -> str:
    """The characters of a document, one for each position in it."""
    return document.toRawText().replace("\u2029", "\n").replace("\u2028", "\n")


def paint_document(
    painter: QPainter,
    document: QTextDocument,
    clip: QRectF,
    selection: Span | None,
    colour: str,
    theme: Theme,
) -> None:
    """Paints a document at the origin, `selection` marked."""
    context = QAbstractTextDocumentLayout.PaintContext()
    context.palette.setColor(QPalette.ColorRole.Text, QColor(colour))
    context.clip = clip
    if selection is not None and selection[0] < selection[1]:
        marked = QAbstractTextDocumentLayout.Selection()
        last = document.characterCount() - 1
        marked.cursor = QTextCursor(document)
        marked.cursor.setPosition(min(selection[0], last))
        marked.cursor.setPosition(min(selection[1], last), QTextCursor.MoveMode.KeepAnchor)
        marked.format.setBackground(QColor(theme.selection))
        marked.format.setForeground(QColor(theme.selection_text))
        context.selections = [marked]
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
