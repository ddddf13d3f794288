"""Markdown that grows at its end: only the last open block is parsed again.

What has been read is kept in two parts. The settled blocks can no longer change, whatever follows; the
open tail is parsed anew at each step. A block settles when a later block begins on a complete line: the
block parser of CommonMark works line by line and never returns to a block it has left. Three things reach
further back, and are handled here: an unfinished last line (never used to settle anything), link
definitions (they change the text of earlier blocks, not their number) and list items (the tail then begins
in the middle of a list).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from markdown_it.token import Token

from desktop.chat.markdown_blocks import (
    BlockBuilder,
    MarkdownBlock,
    References,
    code_text,
    parse_tokens,
    with_references,
)

# With its first line of code: "```a | b" and "-|-" would be the head of a table.
_OPEN_FENCE = re.compile(r"(?:[ \t]*\n)*(`{3,}|~{3,})[^\n]*\n(?=[^\n]*\n)")


_LEAST_CHILD_INDENT = 4


@dataclass(frozen=True, slots=True)
class _OpenList:
    """The list in which the tail begins, with the number of the tail's first item."""

    opener: str
    first_number: int


@dataclass(frozen=True, slots=True)
class _OpenFence:
    """An unclosed code block that is all of the tail: its lines need no parser."""

    marker: str
    code_start: int
    """Where in the tail the code begins."""


class MarkdownDocument:
    """The blocks of a text that is appended to."""

    def __init__(self, text: str = "") -> None:
        self.parsed_characters = 0
        """Characters handed to the parser so far: what streaming costs."""
        self._tail = ""
        self._tail_changed = False
        self._lines_judged = 0
        self._held_return = ""
        self._settled: list[MarkdownBlock] = []
        self._settled_references: References = {}
        self._open: list[MarkdownBlock] = []
        self._references: References = {}
        self._list: _OpenList | None = None
        self._fence: _OpenFence | None = None
        self._unchecked = 0
        self.append(text)

    @property
    def open_characters(self) -> int:
        """Characters that the next look at the blocks will parse."""
        return 0 if self._fence else len(self._tail)

    def append(self, text: str) -> None:
        """Adds text; nothing is parsed before `blocks` is called."""
        text = self._held_return + text
        # A carriage return at the end may be the first half of a line end.
        self._held_return = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        if text:
            self._tail += text
            self._tail_changed = True

    def blocks(self) -> list[MarkdownBlock]:
        """All blocks. Those that did not change since the last call are the same or equal objects."""
        if self._tail_changed:
            self._tail_changed = False
            if not self._extend_fence():
                self._settle()
                self._parse_tail()
        return self._settled + self._open

    def _extend_fence(self) -> bool:
        """Adds plain lines to an open code block; False if a line might close it."""
        fence = self._fence
        if fence is None:
            return False
        added_lines = self._tail[self._unchecked :].split("\n")
        if any(line.lstrip(" ").startswith(fence.marker) for line in added_lines):
            self._fence = None
            return False
        self._unchecked = max(fence.code_start, self._tail.rfind("\n") + 1)
        code = code_text(self._tail[fence.code_start :])
        self._open = [replace(self._open[0], text=code)]
        return True

    def _settle(self) -> None:
        """Moves all blocks but the last out of the tail, judging by complete lines only."""
        complete = self._tail[: self._tail.rfind("\n") + 1]
        if complete.count("\n") <= self._lines_judged:
            return
        lines = complete.split("\n")
        cut = _last_unit(self._parse(complete)[0], lines, self._list)
        if cut.line > 0:
            head = "\n".join(lines[: cut.line]) + "\n"
            # The head is read once more without what follows: definitions in the tail may still change.
            tokens, references = self._parse(head)
            self._settled += with_references(self._build(tokens), self._references)
            self._settled_references = references
            self._tail = self._tail[len(head) :]
            self._list = cut.open_list
        self._lines_judged = self._tail.count("\n")

    def _parse_tail(self) -> None:
        tokens, references = self._parse(self._tail)
        if references != self._references:
            self._references = references
            self._settled = with_references(self._settled, references)
        self._open = with_references(self._build(tokens), self._references)
        opening = _OPEN_FENCE.match(self._tail)
        if opening and len(self._open) == 1 and self._open[0].kind == "code" and not self._open[0].closed:
            self._fence = _OpenFence(opening[1], opening.end())
            self._unchecked = max(opening.end(), self._tail.rfind("\n") + 1)

    def _parse(self, source: str) -> tuple[list[Token], References]:
        # An item in the middle of a list is read after a stand-in for the items before it, indented so far
        # that no item can become its child.
        source = f"{self._list.opener}    x\n{source}" if self._list else source
        self.parsed_characters += len(source)
        return parse_tokens(source, self._settled_references)

    def _build(self, tokens: list[Token]) -> list[MarkdownBlock]:
        if self._list is None:
            return BlockBuilder().build(tokens)
        return BlockBuilder(self._list.first_number - 1).build(tokens)[1:]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Where the last top-level block or list item of a text begins."""

    line: int
    open_list: _OpenList | None


def _last_unit(tokens: list[Token], lines: list[str], begun: _OpenList | None) -> _Unit:
    """The last unit of `lines`; `begun` is the list they begin in, for which `tokens` have a line more."""
    line = end = items = unit_items = 0
    opener, number, stand_in = "", 0, 1 if begun else 0
    for token in tokens:
        if token.map is None:
            continue
        if token.level == 0:
            # What lies between two blocks (blank lines, link definitions) goes with the later one.
            line, end, items, unit_items = end, token.map[1], 0, 0
            if token.type == "ordered_list_open":
                start = token.attrGet("start")
                opener, number = f"1{token.markup}", 1 if start is None else int(start)
            else:
                opener, number = token.markup, 0
            if begun and token is tokens[0]:
                number = begun.first_number - 1
        elif token.level == 1 and token.type == "list_item_open":
            # A deeper item would become a child of the stand-in: it stays with the one before.
            if items and _indent(lines[token.map[0] - stand_in]) < _LEAST_CHILD_INDENT:
                line, unit_items = token.map[0], items
            items += 1
    open_list = _OpenList(opener, number + unit_items) if unit_items else None
    return _Unit(line - stand_in, open_list)


def _indent(line: str) -> int:
    line = line.expandtabs(4)
    return len(line) - len(line.lstrip(" "))
