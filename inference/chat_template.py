"""Messages to prompt text with a model's Jinja template, and where each message's text landed in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inference.message_marks import CutText, Marks, Segment, cut_text
from inference.messages import Message
from inference.request import EngineError, ErrorCode
from inference.template_mends import SEPARATOR, Mend, ShapedChat, Turn, shapes
from inference.template_options import OptionValue, TemplateOption, template_options
from inference.template_process import Rendered, TemplateProcess, TemplateRefused, shared_template_process

TemplateOptions = Mapping[str, OptionValue]

# A chat in another shape may please the template; one that costs too much time or memory must not be tried again.
_MENDABLE = "render"
# What such a template asked for in vain it is not given again for a while; a busy machine may have been to blame.
_RUNS_AWAY = ("time", "memory")
_NOT_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class ChatText:
    """A chat as the template wrote it. segments: joined, exactly that text. lost: messages whose content could not be
    told from template text. mends: what had to be done to the chat for the template to take it.
    generation_prompt: what the template added at the end for a reply to begin; empty where that cannot be told."""

    segments: list[Segment]
    lost: frozenset[int]
    mends: tuple[Mend, ...]
    generation_prompt: str


@dataclass(frozen=True, slots=True)
class _RanAway:
    """Asked again at once (while one types, say), it would hold up the prompts of all other chats."""

    refusal: TemplateRefused
    num_messages: int
    at_s: float

    def holds_for(self, num_messages: int) -> bool:
        return num_messages >= self.num_messages and time.monotonic() - self.at_s < _NOT_AGAIN_S


class ChatTemplate:
    """A template for one model, run in a process of its own (template_process)."""

    def __init__(
        self, source: str, bos_token: str, eos_token: str, process: TemplateProcess | None = None
    ) -> None:
        self._source = source
        self._bos_token, self._eos_token = bos_token, eos_token
        self._process = process or shared_template_process()
        self._generation_prompts: dict[tuple[tuple[str, str], ...], str] = {}
        self._ran_away: _RanAway | None = None
        self._emits_bos_itself = "bos_token" in source and bool(bos_token) and bos_token not in source

    def write(
        self,
        messages: Sequence[Message],
        *,
        keep_bos: bool,
        options: TemplateOptions | None = None,
        now: float | None = None,
    ) -> ChatText:
        """The prompt for the next reply, cut at message borders.

        keep_bos False takes away the BOS that the template put in front through its bos_token variable.
        options: further variables, e.g. enable_thinking. now: what strftime_now tells, Unix time in seconds.
        Raises EngineError(template_failed).
        """
        options = options or {}
        if self._ran_away is not None and self._ran_away.holds_for(len(messages)):
            raise _failure(self._ran_away.refusal)
        marks = Marks([message.content for message in messages])
        first_refusal: TemplateRefused | None = None
        dropped_system: ChatText | None = None
        for shape in shapes(messages):
            try:
                cut = self._cut(messages, shape, marks, keep_bos, options, now)
                generation_prompt = self._generation_prompt(options, now)
            except TemplateRefused as refusal:
                if refusal.kind in _RUNS_AWAY:
                    self._ran_away = _RanAway(refusal, len(messages), time.monotonic())
                if refusal.kind != _MENDABLE:
                    raise _failure(refusal) from refusal
                first_refusal = first_refusal or refusal
                continue
            text = ChatText(cut.segments, cut.lost, shape.mends, generation_prompt)
            if not _drops_system_prompt(cut, messages):
                return text
            # Some templates know no system role and leave the message out without a word.
            dropped_system = dropped_system or text
        if dropped_system is not None:
            return dropped_system
        assert first_refusal is not None
        raise _failure(first_refusal) from first_refusal

    def _cut(
        self,
        messages: Sequence[Message],
        shape: ShapedChat,
        marks: Marks,
        keep_bos: bool,
        options: TemplateOptions,
        now: float | None,
    ) -> CutText:
        """Raises TemplateRefused."""

        def plain(index: int) -> str:
            return messages[index].content

        def around(index: int) -> str:
            return marks.around(messages[index].content, index)

        def inside(index: int) -> str:
            # Only in replies: in what a user typed, a tag is text.
            cut_reasoning = messages[index].role == "assistant"
            return marks.inside(messages[index].content, index, cut_reasoning=cut_reasoning)

        texts = self._render(shape.turns, [plain, around], options, now)
        text = self._without_bos(texts[0].text_or_raise(), keep_bos)
        candidates = self._candidates(texts[1:], marks, keep_bos)
        if "".join(segment.text for candidate in candidates for segment in candidate) != text:
            # It trims, or looks into what is there: marks in other places disturb it less.
            candidates += self._candidates(self._render(shape.turns, [inside], options, now), marks, keep_bos)
        return cut_text(text, candidates, messages)

    def _candidates(self, texts: Sequence[Rendered], marks: Marks, keep_bos: bool) -> list[list[Segment]]:
        written = [self._without_bos(text.text, keep_bos) for text in texts if text.text is not None]
        return [cut for text in written if (cut := marks.cut(text)) is not None]

    def _render(
        self,
        turns: Sequence[Turn],
        contents: Sequence[Callable[[int], str]],
        options: TemplateOptions,
        now: float | None,
    ) -> list[Rendered]:
        """The chat once with each way to write its contents. Raises TemplateRefused."""
        return self._process.render(
            self._source,
            [
                self._variables(
                    [
                        {"role": turn.role, "content": SEPARATOR.join(map(content, turn.message_indexes))}
                        for turn in turns
                    ],
                    options,
                )
                for content in contents
            ],
            now,
        )

    def _variables(
        self, messages: list[dict[str, str]], options: TemplateOptions, *, add_generation_prompt: bool = True
    ) -> dict[str, Any]:
        return {
            **options,
            "messages": messages,
            # As apply_chat_template gives them: some templates ask whether they are defined.
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self._bos_token,
            "eos_token": self._eos_token,
        }

    def _generation_prompt(self, options: TemplateOptions, now: float | None) -> str:
        """E.g. "<|im_start|>assistant\n"; empty where it cannot be told."""
        key = tuple((name, repr(value)) for name, value in sorted(options.items()))
        if key not in self._generation_prompts:
            example = [{"role": "user", "content": "x"}]
            texts = self._process.render(
                self._source,
                [self._variables(example, options, add_generation_prompt=add) for add in (True, False)],
                now,
            )
            with_it, without = texts[0].text or "", texts[1].text or ""
            self._generation_prompts[key] = (
                with_it[len(without) :] if without and with_it.startswith(without) else ""
            )
        return self._generation_prompts[key]

    def _without_bos(self, text: str, keep_bos: bool) -> str:
        return text.removeprefix(self._bos_token) if self._emits_bos_itself and not keep_bos else text


def check_template(source: str, process: TemplateProcess | None = None) -> str | None:
    """Why the text is no template, e.g. written in another language than Jinja; None: it is one. Raises EngineError."""
    try:
        results = (process or shared_template_process()).render(source, [])
    except TemplateRefused as refusal:
        raise _failure(refusal) from refusal
    return str(results[0].refusal) if results else None


def options_of(source: str, process: TemplateProcess | None = None) -> tuple[TemplateOption, ...] | None:
    """The template's options, as its text tells them; None: it cannot be read."""
    try:
        return template_options((process or shared_template_process()).variables(source))
    except TemplateRefused:
        return None


def _drops_system_prompt(cut: CutText, messages: Sequence[Message]) -> bool:
    present = {segment.message_index for segment in cut.segments} | cut.lost
    return any(
        message.role == "system" and message.content.strip() and index not in present
        for index, message in enumerate(messages)
    )


def _failure(refusal: TemplateRefused) -> EngineError:
    return EngineError(
        ErrorCode.TEMPLATE_FAILED,
        f"the model's chat template {refusal}: choose another template for it, or another model",
    )
