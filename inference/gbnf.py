"""Checks a grammar in GBNF before the native library sees it.

llama.cpp's parser (src/llama-grammar.cpp) says what is wrong on stderr only, and some grammars end the process or fill
the memory: {5,3}, left recursion behind a rule that can be empty, deep nesting, references to tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

MAX_REPETITIONS = 2000  # MAX_REPETITION_THRESHOLD
MAX_DEPTH = 300
MAX_ELEMENTS = 200_000
"""Of the native grammar, 8 bytes each, after repetitions are written out."""
MAX_CHAIN = 1000
"""Rules that begin with one another; the native check calls itself once for each."""
MAX_STARTS = 5000
"""Ways to begin a rule; the native matcher keeps a stack for each, and all begin anew at every token."""

_TOKEN = re.compile(
    r"""(?P<skip>[ \t]+|\#[^\r\n]*)
      | (?P<newline>[\r\n])
      | (?P<name>[a-zA-Z0-9-]+)
      | (?P<define>::=)
      | (?P<literal>"(?:[^"\\]|\\.)*")
      | (?P<characters>\[\^?(?:[^\]\\]|\\.)*\])
      | (?P<repeat>[*+?]|\{[ \t]*\d+[ \t]*(?:,[ \t]*\d*[ \t]*)?\})
      | (?P<punctuation>[.|()])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r'\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[trn\\"\[\]-])')


class InvalidGrammar(Exception):
    """`str()` is one line that says where and why."""


@dataclass(slots=True)
class _Symbol:
    """One item of a sequence: a rule, or characters (rule None). length: native elements without repetition."""

    rule: str | None
    length: int
    is_empty: bool = False
    min_times: int = 1
    max_times: int | None = 1

    def can_be_empty(self, empty_rules: set[str]) -> bool:
        return self.is_empty or self.min_times == 0 or self.rule in empty_rules

    def num_elements(self) -> int:
        optional = 1 if self.max_times is None else self.max_times - self.min_times
        return self.length * self.min_times + optional * (self.length + 4)


_Sequence = list[_Symbol]


@dataclass(slots=True)
class _Open:
    """A rule or a group that is being read."""

    name: str
    alternates: list[_Sequence] = field(default_factory=lambda: [[]])


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


@lru_cache(maxsize=16)
def check_gbnf(text: str) -> None:
    """Raises InvalidGrammar unless llama.cpp can read and follow the grammar."""
    rules = _Reader(text).rules
    if "root" not in rules:
        raise InvalidGrammar("the grammar has no rule named root")
    _check_references(rules)
    _check_beginnings(rules)


class _Reader:
    """Reads rules as the native parser does; a group becomes a rule of its own, named with an underscore."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, list[_Sequence]] = {}
        self._tokens = _tokens(text)
        self._place = 0
        self._num_elements = 0
        self._skip_newlines()
        while self._kind() != "end":
            self._read_rule()
            self._skip_newlines()

    def _kind(self) -> str:
        return self._tokens[self._place].kind

    def _next(self) -> _Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _skip_newlines(self) -> None:
        while self._kind() == "newline":
            self._place += 1

    def _read_rule(self) -> None:
        name = self._next()
        if name.kind != "name":
            raise _error(name.line, f"a rule must begin with its name, not {name.text!r}")
        if self._next().kind != "define":
            raise _error(name.line, f"::= is missing after {name.text!r}")
        if name.text in self.rules:
            raise _error(name.line, f"the rule {name.text} is defined twice")
        # Its place, so that rules stay in the order of the text.
        self.rules[name.text] = []
        self._skip_newlines()
        self.rules[name.text] = self._read_alternates(name.text)

    def _read_alternates(self, name: str) -> list[_Sequence]:
        """Up to the end of the line; without recursion, since groups may be nested deeply."""
        opened = [_Open(name)]
        while True:
            token = self._next()
            innermost = opened[-1]
            sequence = innermost.alternates[-1]
            if token.kind in ("newline", "end"):
                if len(opened) > 1:
                    if token.kind == "newline":
                        continue
                    raise _error(token.line, f"a closing ) is missing in the rule {name}")
                self._place -= token.kind == "end"
                return innermost.alternates
            if token.text == "|" and token.kind == "punctuation":
                innermost.alternates.append([])
                self._skip_newlines()
            elif token.text == "(" and token.kind == "punctuation":
                if len(opened) == MAX_DEPTH:
                    raise _error(token.line, f"groups are nested more than {MAX_DEPTH} deep")
                opened.append(_Open(f"{name}_{len(self.rules)}"))
                self.rules[opened[-1].name] = []
            elif token.text == ")" and token.kind == "punctuation":
                if len(opened) == 1:
                    raise _error(token.line, "there is a ) without its (")
                self.rules[innermost.name] = innermost.alternates
                opened.pop()
                opened[-1].alternates[-1].append(_Symbol(innermost.name, 1))
            elif token.kind == "repeat":
                _repeat(sequence, token)
            else:
                sequence.append(_symbol(token))
            self._count(sequence)

    def _count(self, sequence: _Sequence) -> None:
        """Elements so far, the last item as it stands: a repetition behind it is counted with it once more."""
        self._num_elements += sequence[-1].num_elements() if sequence else 1
        if self._num_elements > MAX_ELEMENTS:
            raise InvalidGrammar("the grammar is too large once its repetitions are written out")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _error(line, _why_no_token(text[place]))
        kind = str(match.lastgroup)
        if kind in ("literal", "characters"):
            _check_characters(match[0], line)
        if kind != "skip":
            tokens.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        place = match.end()
    return [*tokens, _Token("end", "the end", line), _Token("end", "the end", line)]


def _why_no_token(character: str) -> str:
    if character in "<!":
        return "references to tokens are not supported: write their text in quotation marks"
    if character == "'":
        return "quotation marks must be double"
    if character in '"[':
        return f"{character} is not closed"
    if character == "{":
        return "a repetition must read {n}, {n,} or {n,m}"
    return f"{character!r} has no meaning here"


def _check_characters(text: str, line: int) -> None:
    if text in ("[]", "[^]"):
        raise _error(line, "a character class is empty")
    place = text.find("\\")
    while place >= 0:
        escape = _ESCAPE.match(text, place)
        if escape is None:
            raise _error(line, f"the escape {text[place : place + 2]} is unknown")
        place = text.find("\\", escape.end())


def _symbol(token: _Token) -> _Symbol:
    if token.kind == "name":
        return _Symbol(token.text, 1)
    if token.kind == "define":
        raise _error(token.line, "::= stands inside a rule; every rule begins on a line of its own")
    # An upper bound: an escape is one element.
    return _Symbol(None, max(1, len(token.text) - 2), is_empty=token.text == '""')


def _repeat(sequence: _Sequence, token: _Token) -> None:
    if not sequence or sequence[-1].is_empty or sequence[-1].max_times == 0:
        raise _error(token.line, f"{token.text} has nothing to repeat")
    if sequence[-1].min_times == 0:
        raise _error(token.line, f"{token.text} repeats what is repeated already")
    bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(token.text)
    if bounds is None:
        low, comma, high = token.text[1:-1].replace(" ", "").replace("\t", "").partition(",")
        # Numbers longer than these are too large in any case, and int() refuses the longest.
        numbers = [int(number[:9]) if number else None for number in (low, high)]
        if any(number is not None and number > MAX_REPETITIONS for number in numbers):
            raise _error(token.line, f"more than {MAX_REPETITIONS} repetitions: {token.text[:40]}")
        bounds = (numbers[0] or 0, numbers[1] if comma else numbers[0])
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise _error(token.line, f"{token.text} ends before it begins")
    last = sequence[-1]
    last.length = last.num_elements()
    last.min_times *= bounds[0]
    last.max_times = None if last.max_times is None or bounds[1] is None else last.max_times * bounds[1]
    if last.max_times is not None and last.max_times > MAX_REPETITIONS:
        raise _error(token.line, f"more than {MAX_REPETITIONS} repetitions of one another")


def _check_references(rules: dict[str, list[_Sequence]]) -> None:
    for name, alternates in rules.items():
        for sequence in alternates:
            for symbol in sequence:
                if symbol.rule is not None and symbol.rule not in rules:
                    raise InvalidGrammar(
                        f"the rule {symbol.rule} is used in {_owner(name)} and defined nowhere"
                    )


def _check_beginnings(rules: dict[str, list[_Sequence]]) -> None:
    """No rule may begin with itself, and none in too many ways."""
    empty_rules = _empty_rules(rules)
    beginnings = {
        name: [_beginning(sequence, empty_rules) for sequence in alternates]
        for name, alternates in rules.items()
    }
    graph = {
        name: [symbol.rule for sequence in sequences for symbol in sequence if symbol.rule is not None]
        for name, sequences in beginnings.items()
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycle = list(dict.fromkeys(_owner(name) for name in error.args[1]))
        raise InvalidGrammar(
            f"the rule {cycle[0]} begins with itself (by way of {', '.join(cycle)}): "
            "put what comes first in front, and repeat it with * or +"
        ) from None
    num_starts: dict[str, int] = {}
    chains: dict[str, int] = {}
    for name in order:
        chains[name] = 1 + max((chains[rule] for rule in graph[name]), default=0)
        num_starts[name] = sum(
            1 + sum(1 if symbol.rule is None else num_starts[symbol.rule] for symbol in sequence)
            for sequence in beginnings[name]
        )
        if num_starts[name] > MAX_STARTS or chains[name] > MAX_CHAIN:
            raise InvalidGrammar(f"the rule {_owner(name)} can begin in too many ways")


def _beginning(sequence: _Sequence, empty_rules: set[str]) -> _Sequence:
    """The items that may come first."""
    for index, symbol in enumerate(sequence):
        if not symbol.can_be_empty(empty_rules):
            return sequence[: index + 1]
    return sequence


def _empty_rules(rules: dict[str, list[_Sequence]]) -> set[str]:
    """Rules that match the empty text."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, alternates in rules.items():
        for rule in {
            symbol.rule for sequence in alternates for symbol in sequence if symbol.rule is not None
        }:
            users[rule].append(name)
    empty: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in empty and any(
            all(symbol.can_be_empty(empty) for symbol in sequence) for sequence in rules[name]
        ):
            empty.add(name)
            waiting += users[name]
    return empty


def _owner(name: str) -> str:
    """The rule that a group stands in."""
    return name.partition("_")[0]


def _error(line: int, problem: str) -> InvalidGrammar:
    return InvalidGrammar(f"line {line} of the grammar: {problem}")
