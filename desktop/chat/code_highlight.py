"""Colours for code, found by Pygments."""

from __future__ import annotations

from collections.abc import Sequence

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token, _TokenType  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

ColouredSpan = tuple[int, int, str]
"""Start and length within the line, in characters, and the name of the theme's colour."""

_MAX_CHARACTERS = 50_000
"""Longer code stays plain: it would hold up the window for more than a tenth of a second."""
_CHUNK_CHARACTERS = 1_000
_RESTART_LINES = 40

_COLOURS: dict[_TokenType, str] = {
    Token.Comment: "code_comment",
    Token.Comment.Preproc: "code_keyword",
    Token.Keyword: "code_keyword",
    Token.Keyword.Constant: "code_constant",
    Token.Keyword.Type: "code_type",
    Token.Literal.String: "code_string",
    Token.Literal.String.Escape: "code_constant",
    Token.Literal.Number: "code_number",
    Token.Name.Function: "code_function",
    Token.Name.Decorator: "code_function",
    Token.Name.Attribute: "code_function",
    Token.Name.Class: "code_type",
    Token.Name.Namespace: "code_type",
    Token.Name.Exception: "code_type",
    Token.Name.Builtin: "code_constant",
    Token.Name.Constant: "code_constant",
    Token.Name.Tag: "code_keyword",
    Token.Name.Variable: "code_number",
    Token.Operator: "code_operator",
    Token.Operator.Word: "code_keyword",
    Token.Punctuation: "code_operator",
    Token.Generic.Inserted: "code_inserted",
    Token.Generic.Deleted: "code_deleted",
    Token.Generic.Heading: "code_keyword",
    Token.Generic.Subheading: "code_keyword",
    Token.Generic.Prompt: "code_comment",
}


def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _colour(token_type: _TokenType) -> str:
    while token_type not in _COLOURS and token_type.parent is not None:
        token_type = token_type.parent
    return _COLOURS.get(token_type, "")


class CodeHighlighter:
    """Colours of code that grows at its end, at a cost that grows with its length only.

    A lexer cannot go on where it stopped. While code streams in, its last lines are coloured by
    themselves, which is nearly always right, and everything again whenever it has grown by half, and when
    it is complete.
    """

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._exact_characters = 0
        self._chunk_line = 0
        self._spans: list[list[ColouredSpan]] = []

    def spans(self, line: int) -> Sequence[ColouredSpan]:
        return self._spans[line] if line < len(self._spans) else ()

    def update(self, lines: Sequence[str], characters: int, complete: bool) -> None:
        """Colours `lines`, which begin with the lines of the last update."""
        if self._lexer is None or characters > _MAX_CHARACTERS:
            return
        if complete or characters <= _CHUNK_CHARACTERS or characters > 1.5 * self._exact_characters:
            self._spans = _lex(self._lexer, lines)
            self._exact_characters = characters
            self._chunk_line = _restart(lines)
            return
        chunk = lines[self._chunk_line :]
        self._spans[self._chunk_line :] = _lex(self._lexer, chunk)
        if sum(map(len, chunk)) > _CHUNK_CHARACTERS:
            self._chunk_line = _restart(lines)


def _restart(lines: Sequence[str]) -> int:
    """A line from which colouring can begin: hardly ever inside a string or a comment."""
    last = len(lines) - 1
    for line in range(last, max(0, last - _RESTART_LINES), -1):
        if lines[line][:1].strip() and not lines[line - 1].strip():
            return line
    return last


def _lex(lexer: Lexer, lines: Sequence[str]) -> list[list[ColouredSpan]]:
    spans: list[list[ColouredSpan]] = [[] for _ in lines]
    line = column = 0
    for _, token_type, value in lexer.get_tokens_unprocessed("\n".join(lines)):
        colour = _colour(token_type)
        for i, part in enumerate(value.split("\n")):
            if i:
                line, column = line + 1, 0
            if colour and part.strip():
                spans[line].append((column, len(part), colour))
            column += len(part)
    return spans
