"""Inline markdown as runs of equally formatted text."""

from __future__ import annotations

from dataclasses import dataclass

from markdown_it.token import Token

from desktop.chat.markdown_blocks import MARKDOWN, References


@dataclass(frozen=True, slots=True)
class InlineRun:
    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    url: str = ""


def inline_runs(content: str, references: References) -> list[InlineRun]:
    """The runs of one paragraph, heading or table cell."""
    tokens: list[Token] = []
    MARKDOWN.inline.parse(content, MARKDOWN, {"references": references}, tokens)
    runs: list[InlineRun] = []
    bold = italic = strike = 0
    url = ""
    for token in tokens:
        text, code = "", False
        match token.type:
            case "strong_open" | "strong_close":
                bold += token.nesting
            case "em_open" | "em_close":
                italic += token.nesting
            case "s_open" | "s_close":
                strike += token.nesting
            case "link_open":
                url = str(token.attrGet("href") or "")
            case "link_close":
                url = ""
            case "softbreak" | "hardbreak":
                # Models end the lines of poems and addresses with a single newline and mean it.
                text = "\n"
            case "code_inline":
                text, code = token.content, True
            case _:
                text = token.content
        if text:
            runs.append(InlineRun(text, bold > 0, italic > 0, strike > 0, code, url))
    return runs


def plain_text(content: str, references: References) -> str:
    """What one reads of `content`."""
    return "".join(run.text for run in inline_runs(content, references))
