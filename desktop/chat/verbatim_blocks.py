"""What a person typed, as blocks: shown exactly as typed, with only fenced code set apart."""

from __future__ import annotations

from markdown_it import MarkdownIt

from desktop.chat.markdown_blocks import MarkdownBlock, code_language, code_text
from desktop.chat.text_pieces import text_pieces

_FENCES = MarkdownIt("zero").enable("fence")


def verbatim_blocks(text: str) -> list[MarkdownBlock]:
    """Blocks of `text`; markdown other than fences stays as it was written."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").strip("\n")
    if "```" not in text and "~~~" not in text:
        return _pieces(text)
    lines = text.split("\n")
    blocks: list[MarkdownBlock] = []
    line = 0
    for token in _FENCES.parse(text + "\n"):
        if token.type == "fence" and token.map:
            blocks += _pieces("\n".join(lines[line : token.map[0]]).strip("\n"))
            line = token.map[1]
            closed = line - token.map[0] == token.content.count("\n") + 2
            language = code_language(token.info)
            blocks.append(MarkdownBlock("code", code_text(token.content), language=language, closed=closed))
    return blocks + _pieces("\n".join(lines[line:]).strip("\n"))


def _pieces(text: str) -> list[MarkdownBlock]:
    return [
        MarkdownBlock("verbatim", piece, joiner=joiner if number else "\n\n")
        for number, (piece, joiner) in enumerate(text_pieces(text))
    ]
