"""One message: its bubble or its plain text, and the footer below it."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from desktop.chat.block_layout import estimated_text_height
from desktop.chat.hot_spot import HotSpot, moved_spots
from desktop.chat.markdown_blocks import MarkdownBlock
from desktop.chat.markdown_document import MarkdownDocument
from desktop.chat.memory_mark import mark_height, paint_mark
from desktop.chat.message_footer import STREAMING_STATES, MessageFooter
from desktop.chat.message_rows import MessageRows, RowPosition
from desktop.chat.reasoning_layout import ReasoningLayout
from desktop.chat.text_layout import Tone
from desktop.chat.text_marks import MarkPlace, MessagePart, PartMarks, TextMarks
from desktop.chat.transcript_message import ShownReasoning, TranscriptMessage
from desktop.chat.transcript_style import TranscriptStyle
from desktop.chat.verbatim_blocks import verbatim_blocks

_BUBBLE_SHARE = 0.86
"""A user's message leaves the left of the column free, so that one sees who speaks."""
RowSpan = tuple[RowPosition, RowPosition]


class MessageLayout:
    """Coordinates are relative to the top left corner of the column at the message's top.

    Heights are whole pixels, or text would tremble while one scrolls.
    """

    __slots__ = (
        "_document",
        "_footer",
        "_is_unfolded",
        "_pad_x",
        "_pad_y",
        "_reasoning",
        "_reasoning_choice",
        "_rows",
        "_style",
        "height",
        "message",
    )

    def __init__(self, message: TranscriptMessage, style: TranscriptStyle) -> None:
        self.message = message
        self._rows: MessageRows | None = None
        self._document: MarkdownDocument | None = None
        self._footer: MessageFooter | None = None
        self._is_unfolded = False
        self._reasoning: ReasoningLayout | None = None
        self._reasoning_choice: bool | None = None
        self.height = 0.0
        self.restyle(style)

    @property
    def is_open(self) -> bool:
        """True once the text has been split into blocks; before that the height is a guess."""
        return self._rows is not None

    @property
    def is_unfolded(self) -> bool:
        """Whether the message's details are shown."""
        return self._is_unfolded

    @property
    def laid_out_blocks(self) -> int:
        return sum(row.layout is not None for row in self._rows.rows) if self._rows else 0

    @property
    def open_characters(self) -> int:
        """Characters that the next flush of streamed text will parse again."""
        own = self._document.open_characters if self._document else 0
        return own + (self._reasoning.open_characters if self._reasoning else 0)

    @property
    def parsed_characters(self) -> int:
        return self._document.parsed_characters if self._document else 0

    @property
    def rows(self) -> MessageRows:
        if self._rows is None:
            tone: Tone = "notice" if self.message.role == "notice" else "text"
            self._rows = MessageRows(self._style, self._rows_width(), tone)
            if self.message.role == "assistant":
                self._document = MarkdownDocument(self.message.text)
            self._read_blocks()
            self._read_reasoning()
            self._lay_out_footer()
            self._sum_heights()
        return self._rows

    def text_blocks(self) -> list[MarkdownBlock]:
        """What the text is shown as; of a message that was not looked at yet, without keeping them."""
        if self._rows is not None:
            return [row.block for row in self._rows.rows]
        if self.message.role == "assistant":
            return MarkdownDocument(self.message.text).blocks()
        return verbatim_blocks(self.message.text)

    def reasoning_blocks(self) -> list[MarkdownBlock]:
        """As text_blocks, be they folded away or not."""
        shown = self.message.reasoning
        return [] if shown is None else MarkdownDocument(shown.text).blocks()

    @property
    def rows_origin(self) -> QPointF:
        """Where the text begins."""
        if self.message.role == "user":
            left = self._style.column_width - self._bubble_width() + self._pad_x
            return QPointF(left, self._mark_height() + self._pad_y)
        return QPointF(0, self._reasoning_height())

    def _mark_height(self) -> float:
        """Only what the user asked begins a turn, and can be the first message that the model sees."""
        return mark_height(self.message.mark, self._style) if self.message.role == "user" else 0.0

    def restyle(self, style: TranscriptStyle) -> None:
        self._style = style
        is_user = self.message.role == "user"
        self._pad_x, self._pad_y = (style.px(16), style.px(11)) if is_user else (0.0, 0.0)
        if self._rows is not None:
            self._rows.restyle(style, self._rows_width())
            if self._reasoning is not None:
                self._reasoning.restyle(style)
            self._lay_out_footer()
        self._sum_heights()

    def set_message(self, message: TranscriptMessage) -> None:
        """Shows a newer version of the message; text that was only extended is not read again."""
        before, self.message = self.message, message
        if self._rows is not None:
            if message.text != before.text:
                grown = message.text.startswith(before.text)
                if self._document is not None and grown:
                    self._document.append(message.text[len(before.text) :])
                elif self._document is not None:
                    self._document = MarkdownDocument(message.text)
                self._read_blocks()
            self._read_reasoning()
            if message.state not in STREAMING_STATES:
                self._rows.finish()
                if self._reasoning is not None:
                    self._reasoning.finish()
            self._lay_out_footer()
        self._sum_heights()

    def append(self, text: str, reasoning: ShownReasoning | None = None) -> None:
        """reasoning: the whole of it as it is now; None: as before."""
        reasoning = reasoning or self.message.reasoning
        self.set_message(replace(self.message, text=self.message.text + text, reasoning=reasoning))

    def toggle_details(self) -> None:
        self._is_unfolded = not self._is_unfolded
        self._lay_out_footer()
        self._sum_heights()

    def toggle_reasoning(self) -> None:
        if self._reasoning is not None:
            self._choose_reasoning(not self._reasoning.is_unfolded)

    def hold_reasoning(self) -> None:
        """Somebody reads here: it stays as it is when the answer begins."""
        if self._reasoning is not None and self._reasoning_choice is None:
            self._choose_reasoning(self._reasoning.is_unfolded)

    def _choose_reasoning(self, is_unfolded: bool) -> None:
        assert self._reasoning is not None
        self._reasoning_choice = is_unfolded
        self._reasoning.unfold(is_unfolded)
        self._sum_heights()

    @property
    def is_reasoning_unfolded(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_unfolded

    def _read_reasoning(self) -> None:
        """It is seen as long as there is no answer, and folds itself away when one begins."""
        shown = self.message.reasoning
        if shown is None:
            self._reasoning = None
            return
        choice = self._reasoning_choice
        is_unfolded = not self.message.text if choice is None else choice
        if self._reasoning is None:
            self._reasoning = ReasoningLayout(shown, self._style, is_unfolded=is_unfolded)
        else:
            self._reasoning.unfold(is_unfolded)
            self._reasoning.show(shown)

    def _reasoning_height(self) -> float:
        return 0.0 if self._reasoning is None else self._reasoning.height

    def lay_out(self, top: float, bottom: float) -> bool:
        """Lays out what lies between; True if that changed a height."""
        before = self.height
        rows = self.rows
        if self._reasoning is not None:
            self._reasoning.lay_out(top, bottom)
        origin = self.rows_origin.y()
        rows.lay_out(top - origin, bottom - origin)
        self._sum_heights()
        return self.height != before

    def y_of(self, place: MarkPlace) -> float:
        """The top of the line with a mark, which is unfolded and laid out for it."""
        rows = self.rows
        if place.part == "reasoning" and self._reasoning is not None:
            if not self._reasoning.is_unfolded:
                self._choose_reasoning(True)
            y = self._reasoning.y_of(place.row, place.start)
        else:
            y = self.rows_origin.y() + rows.y_of(place.row, place.start)
        self._sum_heights()
        return y

    def release(self, top: float, bottom: float) -> None:
        if self._rows is not None:
            origin = self.rows_origin.y()
            self._rows.release(top - origin, bottom - origin)
        if self._reasoning is not None:
            self._reasoning.release(top, bottom)

    def _read_blocks(self) -> None:
        assert self._rows is not None
        if self._document is not None:
            self._rows.set_blocks(self._document.blocks())
        else:
            self._rows.set_blocks(verbatim_blocks(self.message.text))

    def _bubble_width(self) -> float:
        return self._rows_width() + 2 * self._pad_x

    def _rows_width(self) -> float:
        """A short message's bubble is only as wide as its text."""
        column = self._style.column_width
        if self.message.role != "user":
            return column
        widest = float(int(column * _BUBBLE_SHARE)) - 2 * self._pad_x
        if len(self.message.text) > 2 * self._style.characters_per_line:
            return widest
        lines = self.message.text.split("\n")
        if any(line.startswith(("```", "~~~")) for line in lines):
            return widest
        metrics = QFontMetricsF(self._style.text_font)
        natural = max(metrics.horizontalAdvance(line.expandtabs(4)) for line in lines)
        return min(widest, float(int(natural) + 2))

    def _sum_heights(self) -> None:
        if self._rows is None:
            message, style = self.message, self._style
            guess = estimated_text_height(message.text, style, style.column_width)
            parts = (message.caption, message.error, message.actions, message.reasoning, message.standing)
            extra = sum(map(bool, parts))
            self.height = guess + 2 * self._pad_y + extra * style.px(28) + self._mark_height()
        else:
            self.height = self._body_height() + (self._footer.height if self._footer is not None else 0.0)

    def _body_height(self) -> float:
        assert self._rows is not None
        own = self._rows.height + 2 * self._pad_y if self._rows.rows else 0.0
        return own + self._reasoning_height() + self._mark_height()

    def _lay_out_footer(self) -> None:
        message = self.message
        has_footer = message.error or message.caption or message.actions or message.standing
        self._footer = MessageFooter(message, self._style, self._is_unfolded) if has_footer else None

    def paint(
        self, painter: QPainter, clip: QRectF, span: RowSpan | None, marks: TextMarks | None = None
    ) -> None:
        rows, origin = self.rows, self.rows_origin
        if self.message.role == "user" and rows.rows:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(self._style.theme.bubble))
            left = origin.x() - self._pad_x
            top = self._mark_height()
            bubble = QRectF(left, top, self._bubble_width(), self._body_height() - top)
            painter.drawRoundedRect(bubble, 14, 14)
            if top:
                paint_mark(painter, self.message.mark, self._style)
        if self._reasoning is not None:
            self._reasoning.paint(painter, clip, self._part_marks(marks, "reasoning"))
        painter.save()
        painter.translate(origin)
        rows.paint(painter, clip.translated(-origin), span, self._part_marks(marks, "text"))
        painter.restore()
        if self._footer is not None:
            painter.save()
            painter.translate(0, self._body_height())
            self._footer.paint(painter)
            painter.restore()

    def _part_marks(self, marks: TextMarks | None, part: MessagePart) -> PartMarks | None:
        return None if marks is None else marks.of_part(self.message.key, part)

    def hot_spots(self, top: float, bottom: float) -> list[HotSpot]:
        """Buttons between two heights."""
        rows = self.rows
        spots = self._reasoning.hot_spots(top, bottom) if self._reasoning is not None else []
        origin = self.rows_origin
        spots += moved_spots(rows.hot_spots(top - origin.y(), bottom - origin.y()), origin)
        if self._footer is not None:
            spots += moved_spots(self._footer.hot_spots(), QPointF(0, self._body_height()))
        return spots
