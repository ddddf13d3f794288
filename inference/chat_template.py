"""Messages to prompt text with the model's own Jinja template, and where each message's text landed in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inference.messages import Message
from inference.request import EngineError, ErrorCode

# Private-use characters: no template treats them specially, no trimming of white space takes them away.
_MARK_START, _MARK_END = "\ue0f0", "\ue0f1"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the prompt text. message_index None: template text between messages."""

    text: str
    message_index: int | None


class ChatTemplate:
    """A GGUF's chat template, run in Jinja's immutable sandbox.

    The environment and its extras (raise_exception, strftime_now, tojson, loop controls) are those that
    Hugging Face's apply_chat_template gives to templates, which they are written for.
    """

    def __init__(self, source: str, bos_token: str, eos_token: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        environment.filters["tojson"] = _to_json
        self._bos_token, self._eos_token = bos_token, eos_token
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise _failure(f"cannot be read ({error})") from error
        self._generation_prompt: str | None = None
        self._emits_bos_itself = "bos_token" in source and bool(bos_token) and bos_token not in source

    def segments(self, messages: Sequence[Message], *, keep_bos: bool) -> list[Segment]:
        """The prompt for the next reply, cut at message borders; joined, it is exactly what the template wrote.

        keep_bos False takes away the BOS that the template put in front through its bos_token variable.
        Where the template changes contents (trims, strips reasoning), the text from there on is one segment.
        Raises EngineError(template_failed).
        """
        text = self._render([message.content for message in messages], messages)
        if any(_MARK_START in message.content for message in messages):
            return [Segment(text, None)] if keep_bos else [Segment(self._without_bos(text), None)]
        marks = [f"{_MARK_START}{index}{_MARK_END}" for index in range(len(messages))]
        marked = self._render(marks, messages)
        if not keep_bos:
            text, marked = self._without_bos(text), self._without_bos(marked)
        return _align(text, marked, marks, messages)

    @property
    def generation_prompt(self) -> str:
        """What the template adds for a reply to begin, e.g. "<|im_start|>assistant\n"; empty where it cannot be told."""
        if self._generation_prompt is None:
            example = [Message("user", "x")]
            try:
                with_it = self._render(["x"], example)
                without = self._render(["x"], example, add_generation_prompt=False)
            except EngineError:
                with_it = without = ""
            self._generation_prompt = with_it[len(without) :] if with_it.startswith(without) else ""
        return self._generation_prompt

    def _without_bos(self, text: str) -> str:
        return text.removeprefix(self._bos_token) if self._emits_bos_itself else text

    def _render(
        self, contents: Sequence[str], messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> str:
        try:
            return self._template.render(
                messages=[
                    {"role": message.role, "content": content}
                    for message, content in zip(messages, contents, strict=True)
                ],
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos_token,
                eos_token=self._eos_token,
            )
        except EngineError:
            raise
        except Exception as error:
            # A template is a program from a stranger's file: whatever it raises is its failure, not ours.
            raise _failure(f"failed on this chat ({type(error).__name__}: {error})") from error


def _align(text: str, marked: str, marks: Sequence[str], messages: Sequence[Message]) -> list[Segment]:
    """Cut `text` where `marked` has its marks, for as long as each content is found there, trimmed at most."""
    segments: list[Segment] = []
    position = 0
    glue, _, rest = marked.partition(marks[0]) if marks else (marked, "", "")
    for index, message in enumerate(messages):
        next_mark = marks[index + 1] if index + 1 < len(marks) else None
        next_glue, found, rest = rest.partition(next_mark) if next_mark else (rest, "end", "")
        content_at = position + len(glue)
        content = next(
            (
                content
                for content in (message.content, message.content.strip(), message.content.rstrip())
                if text.startswith(glue, position)
                and text.startswith(content, content_at)
                and text.startswith(next_glue, content_at + len(content))
            ),
            None,
        )
        if content is None or not found:
            break
        segments += [Segment(glue, None), Segment(content, index)]
        position, glue = content_at + len(content), next_glue
    segments.append(Segment(text[position:], None))
    return [segment for segment in segments if segment.text]


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, **_options: Any) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which a prompt must not be.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _failure(what: str) -> EngineError:
    return EngineError(ErrorCode.TEMPLATE_FAILED, f"the model's chat template {what}: choose another model")
