"""A reply's reasoning, told from its answer while the text streams in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class _Tags:
    """The opening one is looked for at the beginning of a line only, since a model may well write about it."""

    opening: str
    closing: str


_TAGS = (
    _Tags("<think>", "</think>"),
    _Tags("<thinking>", "</thinking>"),
    _Tags("<thought>", "</thought>"),
    _Tags("<reasoning>", "</reasoning>"),
    _Tags("<reason>", "</reason>"),
    _Tags("<seed:think>", "</seed:think>"),
    _Tags("<mm:think>", "</mm:think>"),
    _Tags("[THINK]", "[/THINK]"),
    _Tags("◁think▷", "◁/think▷"),
    _Tags("<|begin_of_thought|>", "<|end_of_thought|>"),
    _Tags("<|START_THINKING|>", "<|END_THINKING|>"),
    _Tags("<|inner_prefix|>", "<|inner_suffix|>"),
    _Tags("<|channel>thought", "<channel|>"),
    _Tags("<unused94>thought", "<unused95>"),
)
# gpt-oss: <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…
_CHANNEL, _MESSAGE, _START = "<|channel|>", "<|message|>", "<|start|>"
_REPLY_ENDS = ("<|return|>", "<|call|>")
_CHANNEL_ENDS = ("<|end|>", *_REPLY_ENDS, _START, _CHANNEL)
_ANSWER_CHANNEL = "final"

_OPENINGS = (*(tags.opening for tags in _TAGS), _CHANNEL)

REASONING_MARKERS = frozenset(
    [
        *(text for tags in _TAGS for text in (tags.opening, tags.closing)),
        # The rest of these openings is ordinary text.
        "<|channel>",
        "<unused94>",
        _CHANNEL,
        _MESSAGE,
        _START,
        *_CHANNEL_ENDS,
    ]
)
"""What must be written out in a reply's text for its reasoning to be found, also where it is a control token."""

# A line that begins or ends a code block; in lists and quotes too.
_FENCE = re.compile(r"[\s>]*(?:[-*+] +)?(`{3,}|~{3,})(.*)", re.DOTALL)
_MAX_FENCE_LINE = 200


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model wrote before its answer, or between parts of it.

    num_tokens: sampled while reasoning was open, its closing tag included. seconds: from the token before the first of
    them to the last. was_cut: the reply ended before its reasoning did.
    """

    text: str
    num_tokens: int
    seconds: float
    was_cut: bool


class SplitDelta(NamedTuple):
    answer: str = ""
    reasoning: str = ""


class ReasoningSplitter:
    """Fed with a reply's text in pieces, cut anywhere; all deltas together depend on the whole text alone.

    Tags, and white space around reasoning, are left out. A tag inside a code block is text, as is a closing one with
    no opening. Text that may become a tag is held back until that is known.
    """

    def __init__(self, generation_prompt: str = "") -> None:
        """generation_prompt: the end of the prompt; reasoning may have been opened there."""
        self._state: Literal["answer", "reasoning", "header"] = "answer"
        self._closings: tuple[str, ...] = ()
        self._pending = ""
        self._blank = ""
        self._line = ""
        self._is_line_start = True
        self._fence = ""
        self._repeated_opening = ""
        self._has_answer = False
        self._has_reasoning = False
        self._had_block = False
        self._block_is_empty = True
        self._in_channel = False
        self._answer: list[str] = []
        self._reasoning: list[str] = []
        self._open_from_prompt(generation_prompt)

    @property
    def is_reasoning(self) -> bool:
        """Whether reasoning is open; at the end of a reply: it was cut off, and there is no answer."""
        return self._state == "reasoning" or (self._state == "header" and not self._has_answer)

    @property
    def closing(self) -> str:
        """The tag that ends the reasoning that is open; empty where there is none."""
        return self._closings[0] if self._state == "reasoning" else ""

    def feed(self, delta: str) -> SplitDelta:
        if self._passes(delta):
            # Nearly every token, so worth the short way.
            if len(self._line) < _MAX_FENCE_LINE:
                self._line = (self._line + delta)[:_MAX_FENCE_LINE]
            return SplitDelta(delta)
        self._pending += delta
        while self._step(is_last=False):
            pass
        return self._taken()

    def finish(self) -> SplitDelta:
        """What was held back; nothing may follow."""
        while self._step(is_last=True):
            pass
        if self._state == "header" and not self._has_answer and not self._has_reasoning:
            # No channel was named after all; better all of the text than none.
            self._add_answer(self._pending)
        elif self._state == "answer":
            self._add_answer(self._blank)
        self._pending = self._blank = ""
        return self._taken()

    def _passes(self, delta: str) -> bool:
        """It is more of a line of an answer, and nothing in it can be told otherwise later."""
        return (
            self._has_answer
            and not self._pending
            and not self._is_line_start
            and not self._in_channel
            and self._state == "answer"
            and "\n" not in delta
        )

    def _taken(self) -> SplitDelta:
        delta = SplitDelta("".join(self._answer), "".join(self._reasoning))
        self._answer, self._reasoning = [], []
        return delta

    def _open_from_prompt(self, generation_prompt: str) -> None:
        text = generation_prompt.rstrip()
        if text.endswith(_CHANNEL):
            self._state = "header"
            return
        if text.endswith(_MESSAGE) and _CHANNEL in text:
            self._state, self._pending = "header", text[text.rindex(_CHANNEL) + len(_CHANNEL) :]
            self._step(is_last=False)
            return
        for tags in _TAGS:
            if text.endswith(tags.opening):
                self._open(tags)
                return

    def _step(self, *, is_last: bool) -> bool:
        """Take some of what is pending; False: nothing more can be told before more text comes."""
        if not self._pending:
            return False
        match self._state:
            case "answer":
                return self._step_in_answer(is_last)
            case "reasoning":
                return self._step_in_reasoning(is_last)
            case "header":
                return self._step_in_header()

    # --- answer --------------------------------------------------------------------------------------

    def _step_in_answer(self, is_last: bool) -> bool:
        if self._is_line_start and not self._fence:
            stripped = self._pending.lstrip()
            opening = next((opening for opening in _OPENINGS if stripped.startswith(opening)), None)
            if opening is not None:
                self._pending = stripped[len(opening) :]
                self._open_named(opening)
                return True
            if not is_last and _may_become(stripped, _OPENINGS):
                return False
        line_end = self._pending.find("\n") + 1
        end = line_end or len(self._pending)
        if self._in_channel:
            at, marker = _first(self._pending[:end], _CHANNEL_ENDS)
            if marker is not None:
                self._write_answer(self._pending[:at])
                self._pending = self._pending[at + len(marker) :]
                self._end_channel(marker)
                return True
            if not line_end and not is_last:
                end -= _num_held_back(self._pending, _CHANNEL_ENDS)
        if not end:
            return False
        text, self._pending = self._pending[:end], self._pending[end:]
        self._write_answer(text)
        return True

    def _write_answer(self, text: str) -> None:
        self._follow_fences(text)
        if not self._has_answer:
            # White space in front is part of the answer only if no reasoning comes.
            text = self._blank + text
            self._blank = text if not text.strip() else ""
            if self._blank:
                return
            if self._had_block:
                text = text.lstrip()
        self._add_answer(text)

    def _add_answer(self, text: str) -> None:
        if self._had_block and not self._has_answer:
            text = text.lstrip()
        if text:
            self._has_answer = True
            self._answer.append(text)

    def _follow_fences(self, text: str) -> None:
        """text: at most to the end of a line."""
        self._is_line_start = text.endswith("\n") or (self._is_line_start and not text.strip())
        self._line += text[: max(0, _MAX_FENCE_LINE - len(self._line))]
        if not text.endswith("\n"):
            return
        fence = _FENCE.match(self._line)
        self._line = ""
        if fence is None:
            return
        run, rest = fence[1], fence[2]
        if not self._fence:
            # An info string with a backtick makes it code within a line.
            if run[0] != "`" or "`" not in rest:
                self._fence = run
        elif run.startswith(self._fence) and not rest.strip():
            self._fence = ""

    # --- reasoning -----------------------------------------------------------------------------------

    def _open_named(self, opening: str) -> None:
        if opening == _CHANNEL:
            self._state = "header"
        else:
            self._open(next(tags for tags in _TAGS if tags.opening == opening))

    def _open(self, tags: _Tags) -> None:
        self._begin_reasoning((tags.closing,))
        self._repeated_opening = tags.opening

    def _begin_answer(self) -> None:
        self._state = "answer"
        self._line = self._blank = self._fence = ""
        self._is_line_start = True

    def _begin_reasoning(self, closings: tuple[str, ...]) -> None:
        self._state = "reasoning"
        self._had_block = True
        self._closings = closings
        self._repeated_opening = ""
        self._block_is_empty = True
        self._blank = ""

    def _step_in_reasoning(self, is_last: bool) -> bool:
        if self._block_is_empty and self._repeated_opening:
            # Some models write the tag again that the prompt ended with.
            stripped = self._pending.lstrip()
            if stripped.startswith(self._repeated_opening):
                self._pending = stripped[len(self._repeated_opening) :]
                self._repeated_opening = ""
                return True
            if not is_last and _may_become(stripped, (self._repeated_opening,)):
                return False
            self._repeated_opening = ""
        at, closing = _first(self._pending, self._closings)
        if closing is not None:
            self._write_reasoning(self._pending[:at])
            self._pending = self._pending[at + len(closing) :]
            self._begin_answer()
            if self._in_channel:
                self._end_channel(closing)
            return True
        end = len(self._pending) - (0 if is_last else _num_held_back(self._pending, self._closings))
        if not end:
            return False
        text, self._pending = self._pending[:end], self._pending[end:]
        self._write_reasoning(text)
        return True

    def _write_reasoning(self, text: str) -> None:
        text = self._blank + text
        written = text.rstrip()
        self._blank = text[len(written) :]
        if self._block_is_empty:
            written = written.lstrip()
            if written and self._has_reasoning:
                written = "\n\n" + written
        if written:
            self._block_is_empty = False
            self._has_reasoning = True
            self._reasoning.append(written)

    # --- channels ------------------------------------------------------------------------------------

    def _step_in_header(self) -> bool:
        """From <|channel|> or <|start|> up to <|message|>: a channel's name, or whose message it is."""
        at = self._pending.find(_MESSAGE)
        if at < 0:
            return False
        header = self._pending[:at].rpartition(_CHANNEL)[2].split()
        self._pending = self._pending[at + len(_MESSAGE) :]
        self._in_channel = True
        if header[:1] == [_ANSWER_CHANNEL]:
            self._begin_answer()
        else:
            self._begin_reasoning(_CHANNEL_ENDS)
        return True

    def _end_channel(self, marker: str) -> None:
        self._in_channel = False
        # After the others, the next message's header follows.
        if marker not in _REPLY_ENDS:
            self._state = "header"


def _may_become(text: str, markers: Sequence[str]) -> bool:
    return any(len(text) < len(marker) and marker.startswith(text) for marker in markers)


def _first(text: str, markers: Sequence[str]) -> tuple[int, str | None]:
    """The marker that stands first, and where; (0, None): there is none."""
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    return min(found) if found else (0, None)


def _num_held_back(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end may be the beginning of a marker."""
    longest = max(map(len, markers)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if _may_become(text[len(text) - length :], markers):
            return length
    return 0
