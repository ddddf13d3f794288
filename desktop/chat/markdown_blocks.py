"""Markdown as a flat list of blocks: each can be laid out, measured and thrown away by itself.

A block inside a list or a quote carries its containers with it, outermost first, so a list of a
thousand items is a thousand small blocks and not one large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_block import blockquote, list_block
from markdown_it.rules_block.state_block import StateBlock
from markdown_it.rules_inline import image
from markdown_it.rules_inline.state_inline import StateInline
from markdown_it.token import Token

from desktop.chat.text_pieces import text_pieces

References = Mapping[str, Any]
"""Link definitions by normalised label, as markdown-it collects them."""

BlockKind = Literal["text", "heading", "code", "table", "rule", "verbatim"]

ACTIVE_SCHEMES = frozenset({"http", "https", "mailto"})

_MAX_FORMATTED_CHARACTERS = 16_000
"""A longer paragraph is a log or data, not prose: it is shown as it is, in pieces."""

_MAX_LEVEL = 40
"""Lists and quotes nested deeper are text: at its own limit markdown-it would drop what they hold."""

_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_NO_REFERENCES: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Container:
    """A quote or a list item around a block; the marker is set on the item's first block only."""

    kind: Literal["quote", "item"]
    marker: str = ""


@dataclass(frozen=True, slots=True)
class TableCells:
    """A table's inline markdown, header row first."""

    rows: tuple[tuple[str, ...], ...]
    alignments: tuple[Literal["", "left", "center", "right"], ...]


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """The smallest thing that is laid out by itself."""

    kind: BlockKind
    text: str = ""
    """Inline markdown of a text or heading; the exact characters of code and verbatim text."""
    containers: tuple[Container, ...] = ()
    level: int = 0
    """1 to 6 for headings."""
    language: str = ""
    closed: bool = True
    """False while the closing fence of a code block has not been read."""
    table: TableCells | None = None
    references: References = field(default_factory=lambda: _NO_REFERENCES)
    joiner: str = "\n\n"
    """What stands between the block before and this one in copied text."""

    @property
    def source_length(self) -> int:
        """Characters to lay out, for an estimate of the height."""
        if self.table is not None:
            return sum(len(cell) for row in self.table.rows for cell in row)
        return len(self.text)

    @property
    def copy_prefix(self) -> str:
        """What copied text shows of the block's containers."""
        if self.kind == "code":
            return ""
        parts = []
        for container in self.containers:
            if container.kind == "quote":
                parts.append("> ")
            else:
                parts.append(container.marker + " " if container.marker else "  ")
        return "".join(parts)


def _is_active_link(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in ACTIVE_SCHEMES
    except ValueError:
        return False


def _literal_image(state: StateInline, silent: bool) -> bool:
    """An image is never fetched: its source is shown as it was written."""
    start, tokens_before = state.pos, len(state.tokens)
    pending_before = state.pending
    if not image(state, silent):
        return False
    if not silent:
        del state.tokens[tokens_before:]
        state.tokens_meta = state.tokens_meta[:tokens_before]
        state.pending = pending_before + state.src[start : state.pos]
    return True


def _deep_list(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A list item is an item however deep it is indented, and not more of the paragraph before."""
    if state.level > _MAX_LEVEL:
        return False
    outer, state.listIndent = state.listIndent, -1
    found = list_block(state, start_line, end_line, silent)
    state.listIndent = outer
    return found


def _shallow_quote(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    return state.level <= _MAX_LEVEL and blockquote(state, start_line, end_line, silent)


def _parser() -> MarkdownIt:
    # HTML and entities are text, so that what the model wrote is what one sees. Links that would not open
    # in a browser or mail program fail validation and stay text as well.
    markdown = MarkdownIt("commonmark", {"maxNesting": 100})
    markdown.enable(["table", "strikethrough"])
    markdown.disable(["html_block", "html_inline", "entity"])
    markdown.validateLink = _is_active_link  # type: ignore[method-assign]
    markdown.inline.ruler.at("image", _literal_image)
    interrupted = ["paragraph", "reference", "blockquote"]
    markdown.block.ruler.at("list", _deep_list, {"alt": interrupted})
    markdown.block.ruler.at("blockquote", _shallow_quote, {"alt": [*interrupted, "list"]})
    return markdown


MARKDOWN = _parser()


class _BlockState(StateBlock):
    """Models indent lists as they like: a list item is never the first line of code."""

    def is_code_block(self, line: int) -> bool:
        start = self.bMarks[line] + self.tShift[line]
        return super().is_code_block(line) and not _LIST_ITEM.match(self.src, start, self.eMarks[line])


def parse_tokens(source: str, references: References) -> tuple[list[Token], dict[str, Any]]:
    """The block tokens of `source`, and `references` with the definitions found in it.

    Inline markdown is left alone until its block is laid out.
    """
    env: dict[str, Any] = {"references": dict(references)}
    # markdown-it drops a last line of spaces inside an open fence unless a newline ends it.
    state = _BlockState(source if source.endswith("\n") else source + "\n", MARKDOWN, env, [])
    MARKDOWN.block.tokenize(state, state.line, state.lineMax)
    # Without the line numbers that markdown-it adds, a definition is the same wherever it is read.
    found = {label: {"href": d["href"], "title": d["title"]} for label, d in env["references"].items()}
    return state.tokens, found


def with_references(blocks: Iterable[MarkdownBlock], references: References) -> list[MarkdownBlock]:
    """The blocks, those that may use a link definition renewed where the definitions changed."""
    return [
        replace(block, references=references)
        if _may_refer(block) and block.references is not references
        else block
        for block in blocks
    ]


def _may_refer(block: MarkdownBlock) -> bool:
    if block.table is not None:
        return any("[" in cell for row in block.table.rows for cell in row)
    return block.kind in ("text", "heading") and "[" in block.text


def code_text(content: str) -> str:
    """The code between the fences: the newline before the closing fence belongs to the fence."""
    return content.removesuffix("\n")


def code_language(info: str) -> str:
    """The language of a fence's info string, "" if it names none."""
    words = info.split(maxsplit=1)
    return words[0].strip("{}.") if words else ""


class BlockBuilder:
    """Flattens block tokens; `first_number` is the number of the first item of the first list."""

    def __init__(self, first_number: int | None = None) -> None:
        self._blocks: list[MarkdownBlock] = []
        self._containers: list[Container] = []
        self._emitted: list[bool] = []
        self._numbers: list[int | None] = []
        self._items: list[int] = []
        self._first_number = first_number
        self._next_joiner = "\n\n"
        self._after_item_start = False

    def build(self, tokens: Sequence[Token]) -> list[MarkdownBlock]:
        table: list[list[str]] = []
        alignments: list[str] = []
        heading = 0
        for token in tokens:
            match token.type:
                case "blockquote_open":
                    self._open(Container("quote"))
                case "bullet_list_open":
                    self._numbers.append(None)
                    self._items.append(0)
                case "ordered_list_open":
                    self._numbers.append(self._list_start(token))
                    self._items.append(0)
                case "bullet_list_close" | "ordered_list_close":
                    self._numbers.pop()
                    self._items.pop()
                case "list_item_open":
                    self._open(Container("item", self._marker(token)))
                case "blockquote_close" | "list_item_close":
                    self._close()
                case "heading_open":
                    heading = int(token.tag[1])
                case "heading_close":
                    heading = 0
                case "table_open":
                    table, alignments = [], []
                case "tr_open":
                    table.append([])
                case "th_open":
                    alignments.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
                case "table_close":
                    cells = TableCells(tuple(map(tuple, table)), tuple(alignments))  # type: ignore[arg-type]
                    self._emit(MarkdownBlock("table", table=cells))
                    table = []
                case "inline" if table:
                    table[-1].append(token.content)
                case "inline":
                    self._text(token.content, heading)
                case "fence":
                    lines = token.content.count("\n")
                    closed = token.map is None or token.map[1] - token.map[0] == lines + 2
                    language = code_language(token.info)
                    code = code_text(token.content)
                    self._emit(MarkdownBlock("code", code, language=language, closed=closed))
                case "code_block":
                    self._emit(MarkdownBlock("code", code_text(token.content)))
                case "hr":
                    self._emit(MarkdownBlock("rule"))
        return self._blocks

    def _list_start(self, token: Token) -> int:
        if self._first_number is not None and not self._blocks:
            return self._first_number
        start = token.attrGet("start")
        return 1 if start is None else int(start)

    def _marker(self, token: Token) -> str:
        # Only the first item of a top-level list stands apart from what is before it.
        self._next_joiner = "\n" if self._items[-1] or len(self._items) > 1 else "\n\n"
        self._items[-1] += 1
        number = self._numbers[-1]
        if number is None:
            depth = sum(value is None for value in self._numbers)
            return "•◦▪"[min(depth, 3) - 1]
        self._numbers[-1] = number + 1
        return f"{number}{token.markup}"

    def _open(self, container: Container) -> None:
        self._containers.append(container)
        self._emitted.append(False)
        self._after_item_start = container.kind == "item"

    def _close(self) -> None:
        if not self._emitted[-1]:
            self._emit(MarkdownBlock("text"))
        self._containers.pop()
        self._emitted.pop()
        self._after_item_start = False

    def _text(self, content: str, heading: int) -> None:
        task = _TASK.match(content) if self._after_item_start and not heading else None
        if task:
            self._containers[-1] = Container("item", "☐" if task[1] == " " else "☑")
            content = content[task.end() :]
        if len(content) <= _MAX_FORMATTED_CHARACTERS:
            self._emit(MarkdownBlock("heading" if heading else "text", content, level=heading))
            return
        for number, (piece, joiner) in enumerate(text_pieces(content)):
            self._emit(MarkdownBlock("verbatim", piece))
            if number:
                self._blocks[-1] = replace(self._blocks[-1], joiner=joiner)

    def _emit(self, block: MarkdownBlock) -> None:
        containers = tuple(
            Container(container.kind) if emitted else container
            for container, emitted in zip(self._containers, self._emitted, strict=True)
        )
        self._blocks.append(replace(block, containers=containers, joiner=self._next_joiner))
        self._next_joiner = "\n\n"
        self._emitted = [True] * len(self._emitted)
        self._after_item_start = False
