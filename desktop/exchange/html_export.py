"""Chats as one HTML file that needs nothing else: no script, nothing fetched, all text escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from desktop.chat.code_highlight import CodeHighlighter, ColouredSpan
from desktop.chat.markdown_blocks import MARKDOWN, code_language, code_text, parse_tokens
from desktop.conversations.whole_chats import TreeMessage, WholeChat
from desktop.exchange.html_style import style_sheet
from desktop.exchange.markdown_export import (
    date_of,
    ending_of,
    reasoning_title,
    shown_branch,
    speaker_of,
    title_of,
)

_MAX_FORMATTED_CHARACTERS = 200_000
"""A longer message is data, not prose: it is shown as it is."""
_TASK = re.compile(r"\[([ xX])\][ \t]+")


def html_start(title: str) -> str:
    # The policy forbids what the escaping already keeps out.
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style_sheet()}</style>\n</head>\n<body>\n<main>\n"
    )


def html_contents(titles: Sequence[str]) -> str:
    """Links to the chats of a file that has several."""
    items = "".join(
        f'<li><a href="#chat-{number}">{html.escape(title)}</a></li>\n'
        for number, title in enumerate(titles, 1)
    )
    return f"<nav><h2>Chats</h2><ol>\n{items}</ol></nav>\n"


def html_of(chat: WholeChat, number: int, *, with_reasoning: bool) -> str:
    """The branch that is shown. number: of the chat in the file."""
    parts = [
        f'<article id="chat-{number}">\n<h1 dir="auto">{html.escape(title_of(chat))}</h1>\n'
        f'<p class="date">{html.escape(date_of(chat))}</p>\n'
    ]
    if prompt := chat.columns.get("system_prompt"):
        parts.append(_section("system", "System", html_of_markdown(prompt)))
    parts.extend(_message(message, with_reasoning) for message in shown_branch(chat))
    parts.append("</article>\n")
    return "".join(parts)


def html_end() -> str:
    return "</main>\n</body>\n</html>\n"


def html_of_markdown(text: str) -> str:
    """As the transcript shows it: HTML and images are text, links other than http, https and mailto too."""
    if len(text) > _MAX_FORMATTED_CHARACTERS:
        return f"<pre>{html.escape(text)}</pre>\n"
    tokens, references = parse_tokens(text, {})
    env: MutableMapping[str, Any] = {"references": references}
    for at, token in enumerate(tokens):
        if token.type == "inline":
            token.children = []
            MARKDOWN.inline.parse(token.content, MARKDOWN, env, token.children)
            if at > 1 and tokens[at - 2].type == "list_item_open":
                _mark_task(token.children)
    return _renderer().render(tokens, _options(), env)


def _section(role: str, speaker: str, inside: str) -> str:
    return f'<section class="{role}">\n<h2>{html.escape(speaker)}</h2>\n<div dir="auto">{inside}</div>\n</section>\n'


def _message(message: TreeMessage, with_reasoning: bool) -> str:
    inside: list[str] = []
    reasoning = message.columns.get("reasoning")
    if with_reasoning and reasoning:
        summary = html.escape(reasoning_title(message))
        inside.append(f"<details><summary>{summary}</summary>\n{html_of_markdown(reasoning)}</details>\n")
    inside.append(html_of_markdown(message.columns["content"]))
    if note := ending_of(message):
        inside.append(f'<p class="note">{html.escape(note)}</p>\n')
    role = message.columns["role"]
    return _section(role, speaker_of(message), "".join(inside))


def _mark_task(children: Sequence[Token]) -> None:
    first = children[0] if children else None
    if first is not None and first.type == "text" and (task := _TASK.match(first.content)):
        box = "☐" if task[1] == " " else "☑"
        first.content = f"{box} {first.content[task.end() :]}"


class _Renderer(RendererHTML):
    def link_open(
        self, tokens: Sequence[Token], at: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        tokens[at].attrSet("rel", "noopener noreferrer nofollow")
        return self.renderToken(tokens, at, options, env)

    def fence(
        self, tokens: Sequence[Token], at: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        language = code_language(tokens[at].info)
        label = f'<span class="language">{html.escape(language)}</span>' if language else ""
        return f"<pre>{label}<code>{''.join(_coloured(tokens[at].content, language))}</code></pre>\n"


def _coloured(code: str, language: str) -> Iterator[str]:
    lines = code_text(code).split("\n")
    highlighter = CodeHighlighter(language)
    highlighter.update(lines, len(code), complete=True)
    for number, line in enumerate(lines):
        if number:
            yield "\n"
        at = 0
        for start, end, colour in _joined(highlighter.spans(number)):
            yield html.escape(line[at:start])
            yield f'<span class="{colour}">{html.escape(line[start:end])}</span>'
            at = end
        yield html.escape(line[at:])


def _joined(spans: Sequence[ColouredSpan]) -> Iterator[tuple[int, int, str]]:
    """Start, end and colour; neighbours of one colour are one."""
    before: tuple[int, int, str] | None = None
    for start, length, colour in spans:
        if before is not None and before[1:] == (start, colour):
            before = (before[0], start + length, colour)
            continue
        if before is not None:
            yield before
        before = (start, start + length, colour)
    if before is not None:
        yield before


@cache
def _renderer() -> _Renderer:
    return _Renderer()


@cache
def _options() -> OptionsDict:
    # A single newline is a new line in the transcript too.
    options = OptionsDict(MARKDOWN.options)  # type: ignore[arg-type]
    options["breaks"] = True
    return options
