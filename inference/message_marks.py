"""Where in a prompt's text each message landed: contents are marked, and the marks looked up in what a template wrote.

The text itself comes from the chat without marks, since templates look into contents; what was written with marks only
tells where to cut it. So a wrong guess could move a cut, never change the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from inference.messages import Message

# Templates cut replies at these; text between them then still has its own marks.
_REASONING_TAG = re.compile(r"(\s*</?(?:think|thinking|thought|reasoning|seed:think|mm:think)>\s*)")
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000fffff]")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the prompt text. message_index None: template text between messages."""

    text: str
    message_index: int | None


class Marks:
    """Three characters from the private use areas that no content has: no template treats them specially, and no
    trimming of white space takes them away. Written around a text: start, message number, middle, text, end."""

    def __init__(self, contents: Sequence[str]) -> None:
        used = {character for content in contents for character in _PRIVATE.findall(content)}
        private = chain(range(0xE0F0, 0xF8FF), range(0xF0000, 0xFFFFE))
        free = (chr(code) for code in private if chr(code) not in used)
        self._start, self._middle, self._end = next(free), next(free), next(free)
        self._pattern = re.compile(f"({self._start}[0-9]+{self._middle}|{self._end})")

    def around(self, content: str, message_index: int) -> str:
        return (
            f"{self._start}{message_index}{self._middle}{content}{self._end}" if content.strip() else content
        )

    def inside(self, content: str, message_index: int, *, cut_reasoning: bool) -> str:
        """White space at either end stays outside, so that trimming does the same as without marks."""
        pieces = _REASONING_TAG.split(content) if cut_reasoning else [content]
        return "".join(
            piece if number % 2 else self._inside_white_space(piece, message_index)
            for number, piece in enumerate(pieces)
        )

    def _inside_white_space(self, text: str, message_index: int) -> str:
        stripped = text.strip()
        leading, _, trailing = text.partition(stripped) if stripped else (text, "", "")
        return leading + self.around(stripped, message_index) + trailing

    def cut(self, marked: str) -> list[Segment] | None:
        """The marked text at its marks, without them; None where a mark has lost its counterpart."""
        segments: list[Segment] = []
        index: int | None = None
        for number, piece in enumerate(self._pattern.split(marked)):
            if number % 2 == 0:
                segments.append(Segment(piece, index))
            elif (piece == self._end) == (index is None):
                return None
            else:
                index = None if piece == self._end else int(piece[1:-1])
        return None if index is not None else [segment for segment in segments if segment.text]


@dataclass(frozen=True, slots=True)
class CutText:
    """segments: joined, exactly the text. lost: messages whose content could not be told from template text, though
    it may be in there."""

    segments: list[Segment]
    lost: frozenset[int] = frozenset()


def cut_text(text: str, candidates: Sequence[list[Segment]], messages: Sequence[Message]) -> CutText:
    """Cut `text` where the first of `candidates` that reads the same is cut, or else at the contents it can find.

    candidates: what the template wrote with marks, each way of marking.
    """
    for segments in candidates:
        if "".join(segment.text for segment in segments) == text:
            return CutText(_whole_contents(segments, messages))
    for segments in candidates:
        cut = _cut_but_one_place(text, segments)
        if cut is not None:
            return CutText(_whole_contents(cut, messages))
    return _cut_at_contents(text, messages)


def _cut_but_one_place(text: str, segments: list[Segment]) -> list[Segment] | None:
    """For a template that wrote something else in one place because of the marks. What it wrote there is the message's
    whose text the marks had there. None: that is more than one message's."""
    marked = "".join(segment.text for segment in segments)
    before = _num_common(text, marked)
    limit = min(len(text), len(marked)) - before
    after = _num_common(text[len(text) - limit :][::-1], marked[len(marked) - limit :][::-1])
    changed_from, changed_to = before, len(marked) - after
    head, tail, touched = [], [], set()
    position = 0
    for segment in segments:
        end = position + len(segment.text)
        if position < changed_from:
            head.append(Segment(segment.text[: changed_from - position], segment.message_index))
        if end > changed_to:
            tail.append(Segment(segment.text[max(0, changed_to - position) :], segment.message_index))
        if segment.message_index is not None and position <= changed_to and end >= changed_from:
            touched.add(segment.message_index)
        position = end
    if len(touched) > 1:
        return None
    changed = Segment(text[before : len(text) - after], touched.pop() if touched else None)
    joined: list[Segment] = []
    for segment in (*head, changed, *tail):
        if joined and segment.text and joined[-1].message_index == segment.message_index:
            joined[-1] = Segment(joined[-1].text + segment.text, segment.message_index)
        elif segment.text:
            joined.append(segment)
    return joined


def _num_common(text: str, other: str) -> int:
    """Characters that both begin with."""
    shorter = min(len(text), len(other))
    return next((at for at in range(shorter) if text[at] != other[at]), shorter)


def _cut_at_contents(text: str, messages: Sequence[Message]) -> CutText:
    segments: list[Segment] = []
    lost: set[int] = set()
    position = 0
    contents = [message.content.strip() for message in messages]
    for index, content in enumerate(contents):
        if not content:
            continue
        found = text.find(content, position)
        # What stands there more often may as well be the template's own.
        if found < 0 or text.count(content) != contents.count(content):
            lost.add(index)
            continue
        segments += [Segment(text[position:found], None), Segment(content, index)]
        position = found + len(content)
    segments.append(Segment(text[position:], None))
    return CutText([segment for segment in segments if segment.text], frozenset(lost))


def _whole_contents(segments: list[Segment], messages: Sequence[Message]) -> list[Segment]:
    """Pieces of one content that stand side by side become one, with the white space that was outside its marks."""
    places: dict[int, list[int]] = {}
    for place, segment in enumerate(segments):
        if segment.message_index is not None:
            places.setdefault(segment.message_index, []).append(place)
    joined = list(segments)
    for index in sorted(places, key=lambda index: -places[index][0]):
        first, last = places[index][0], places[index][-1] + 1
        content = messages[index].content
        text = "".join(segment.text for segment in joined[first:last])
        if text == content and last - first == 1:
            continue
        at = content.find(text)
        if at < 0 or content.strip() != text.strip():
            continue
        leading, trailing = content[:at], content[at + len(text) :]
        before = _template_text(joined, first - 1)
        after = _template_text(joined, last)
        if not before.endswith(leading) or not after.startswith(trailing):
            continue
        # Backwards, so that places in front of these stay as they were counted.
        around = [
            Segment(before.removesuffix(leading) if leading else before, None),
            Segment(content, index),
            Segment(after.removeprefix(trailing), None),
        ]
        start, end = first - (1 if before else 0), last + (1 if after else 0)
        joined[start:end] = [segment for segment in around if segment.text]
    return joined


def _template_text(segments: list[Segment], place: int) -> str:
    if not 0 <= place < len(segments) or segments[place].message_index is not None:
        return ""
    return segments[place].text
