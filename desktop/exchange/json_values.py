"""JSON read value by value, so that a file of any size takes the memory of its largest chat only.

A value that is broken or too large costs itself and not the ones after it: where it ends is told from its brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from desktop.exchange.errors import NotReadable

MAX_VALUE_BYTES = 64_000_000
"""Of one chat; the longest known ones are below 30 MB."""
MAX_COMMAS = 3_000_000
"""Bounds how many Python objects come of one value: each costs some sixty bytes."""
MAX_DEPTH = 200
MAX_VALUES = 2_000_000
"""Of one file."""

_CHUNK_BYTES = 1 << 18
_SPACE = b" \t\r\n"
_SPACES = re.compile(rb"[ \t\r\n]*+")
_MAX_MEMBERS = 100_000
_BOM = b"\xef\xbb\xbf"
# A whole string, or a quote whose string goes on beyond what has been read, or a bracket.
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_CUT_OFF = "the file ends too early; it may not have been saved completely"
_SCALAR_END = re.compile(rb"[\s,\]}\[{:]")
_MEMBERS_OF_CHATS = frozenset({"chats", "conversations"})

Read = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class JsonValue:
    """fault: why it is not there. num_replaced: how many of its bytes were no text and are replaced by U+FFFD."""

    value: object = None
    fault: str = ""
    num_replaced: int = 0


def json_values(read: Read) -> Iterator[JsonValue]:
    """The elements of the list that the file is, or of its member "chats" or "conversations"; else its whole values.

    Raises NotReadable where the file cannot be followed any further.
    """
    text = _Text(read)
    text.skip_bom()
    if text.peek() is None:
        raise NotReadable("the file is empty")
    num_values = num_good = 0
    while (first := text.peek()) is not None:
        if first == b"[":
            values = text.elements()
        elif first == b"{":
            values = text.members()
        else:
            raise NotReadable("the rest is not JSON" if num_good else "it is not JSON")
        for value in values:
            num_values += 1
            num_good += not value.fault
            if num_values > MAX_VALUES:
                raise NotReadable(f"it holds more than {MAX_VALUES:,} entries; the rest was not read")
            yield value


def json_lines(read_line: Callable[[int], bytes]) -> Iterator[JsonValue]:
    """Of a file with a JSON value a line."""
    for number in range(MAX_VALUES):
        line = read_line(MAX_VALUE_BYTES)
        if not line:
            return
        if len(line) == MAX_VALUE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = read_line(_CHUNK_BYTES)
            yield JsonValue(fault=f"line {number + 1} is longer than {MAX_VALUE_BYTES // 1_000_000} MB")
        elif line.strip(_SPACE):
            yield decode(line.removeprefix(_BOM) if number == 0 else line)
    raise NotReadable(f"it holds more than {MAX_VALUES:,} lines; the rest was not read")


def is_json_lines(read_line: Callable[[int], bytes]) -> bool:
    """Whether a file holds an object a line: the first line is a whole one, and not the only one."""
    first = read_line(_CHUNK_BYTES).removeprefix(_BOM)
    if not first.lstrip(_SPACE).startswith(b"{"):
        return False
    if not first.endswith(b"\n"):
        first += read_line(MAX_VALUE_BYTES)
    more = first.endswith(b"\n") and read_line(_CHUNK_BYTES).strip(_SPACE)
    return bool(more) and isinstance(decode(first).value, dict)


def decode(source: bytes) -> JsonValue:
    if source.count(b",") > MAX_COMMAS:
        return JsonValue(fault=f"it holds more than {MAX_COMMAS:,} values")
    try:
        text, num_replaced = source.decode("utf-8"), 0
    except UnicodeDecodeError:
        text = source.decode("utf-8", "replace")
        num_replaced = text.count("\ufffd") - source.count("\ufffd".encode())
    try:
        return JsonValue(json.loads(text), num_replaced=num_replaced)
    except RecursionError:
        return JsonValue(fault="it is nested too deeply")
    except ValueError as error:
        # Python's own words name the place: "Expecting ',' delimiter: line 1 column 7 (char 6)".
        return JsonValue(fault=f"its JSON is damaged ({' '.join(str(error).split())[:100]})")


class _Text:
    """The bytes around the place that is read; what is before it is dropped."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._buffer = b""
        self._at = 0

    def skip_bom(self) -> None:
        while len(self._buffer) < 3 and self._fill():
            pass
        if self._buffer.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise NotReadable("its text is UTF-16; save it as UTF-8")
        if self._buffer.startswith(_BOM):
            self._at = len(_BOM)

    def peek(self) -> bytes | None:
        """The next byte that is no space; None: the end."""
        while True:
            spaces = _SPACES.match(self._buffer, self._at)
            self._at = spaces.end() if spaces else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._fill():
                return None

    def elements(self) -> Iterator[JsonValue]:
        """From a [ to its ]."""
        self._at += 1
        while (first := self.peek()) != b"]":
            if first is None:
                raise NotReadable(_CUT_OFF)
            if first == b",":
                self._at += 1
            else:
                yield self._value()
        self._at += 1

    def members(self) -> Iterator[JsonValue]:
        """From a { to its }: the elements of a list of chats in it, else the whole object."""
        self._at += 1
        members: dict[str, object] = {}
        num_replaced, size, num_commas, fault, has_list = 0, 0, 0, "", False
        while (first := self.peek()) != b"}":
            if first is None:
                raise NotReadable(_CUT_OFF)
            if first == b",":
                self._at += 1
                continue
            key, _ = self._take() if first == b'"' else (b"", "")
            name = decode(key).value
            if not isinstance(name, str) or self.peek() != b":":
                raise NotReadable("its JSON is damaged")
            self._at += 1
            if self.peek() == b"[" and name in _MEMBERS_OF_CHATS:
                has_list = True
                yield from self.elements()
                continue
            source, reason = self._take()
            size += len(key) + len(source)
            num_commas += 1 + source.count(b",")
            if size > MAX_VALUE_BYTES or num_commas > MAX_COMMAS or len(members) > _MAX_MEMBERS:
                reason = reason or _too_large()
            value = JsonValue(fault=reason) if fault or reason else decode(source)
            fault = fault or value.fault
            num_replaced += value.num_replaced
            if fault:
                members.clear()
            else:
                members[name] = value.value
        self._at += 1
        if not has_list:
            yield JsonValue(fault=fault) if fault else JsonValue(members, num_replaced=num_replaced)

    def _value(self) -> JsonValue:
        source, fault = self._take()
        return JsonValue(fault=fault) if fault else decode(source)

    def _take(self) -> tuple[bytes, str]:
        """The bytes of the value that begins here, or why they were not kept; behind it afterwards."""
        first = self.peek()
        if first is None:
            raise NotReadable(_CUT_OFF)
        if first not in (b'"', b"[", b"{"):
            return self._take_scalar(), ""
        depth, fault = 0, ""
        at = self._at  # where the search goes on
        while True:
            mark = _MARK.search(self._buffer, at)
            if mark is None or mark[0] == b'"':
                # An unfinished string is searched from its beginning again, when there is twice as much of it.
                at = len(self._buffer) if mark is None else mark.start()
                if len(self._buffer) - self._at > MAX_VALUE_BYTES:
                    fault = fault or _too_large()
                    if len(self._buffer) - at > MAX_VALUE_BYTES:
                        raise NotReadable(
                            f"it holds a single text of more than {MAX_VALUE_BYTES // 1_000_000} MB"
                        )
                if fault:
                    self._at = at
                at -= self._drop()
                if not self._fill():
                    raise NotReadable(_CUT_OFF)
                continue
            at = mark.end()
            match mark[0][:1]:
                case b"[" | b"{":
                    depth += 1
                    if depth > MAX_DEPTH:
                        fault = fault or "it is nested too deeply"
                case b"]" | b"}":
                    depth -= 1
            if depth <= 0:
                source = b"" if fault else self._buffer[self._at : at]
                self._at = at
                return source, fault or (_too_large() if len(source) > MAX_VALUE_BYTES else "")

    def _take_scalar(self) -> bytes:
        while (end := _SCALAR_END.search(self._buffer, self._at + 1)) is None:
            if len(self._buffer) - self._at > 1000:
                raise NotReadable("its JSON is damaged")
            if not self._fill():
                break
        stop = len(self._buffer) if end is None else end.start()
        source = self._buffer[self._at : stop]
        self._at = stop
        return source

    def _fill(self) -> bool:
        """Read on: as much again as there is, so that copying it costs no more than reading."""
        self._drop()
        chunk = self._read(max(_CHUNK_BYTES, min(len(self._buffer), MAX_VALUE_BYTES // 4)))
        self._buffer += chunk
        return bool(chunk)

    def _drop(self) -> int:
        """Forget what is before the place; how many bytes that were."""
        dropped, self._at = self._at, 0
        self._buffer = self._buffer[dropped:]
        return dropped


def _too_large() -> str:
    return f"it is larger than {MAX_VALUE_BYTES // 1_000_000} MB"
