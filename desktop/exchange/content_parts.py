"""What a message of another program consists of, as text: what cannot come in leaves a visible mark there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from desktop.exchange.foreign_values import as_list, as_object, as_text, as_title
from desktop.exchange.incoming import Notes

_MAX_NAME_CHARACTERS = 80
_FENCE_RUN = re.compile(r"`{3,}|~{3,}")


@dataclass(slots=True)
class PartsText:
    """Collects the text of one message's parts, its reasoning, and notes of what is left out."""

    notes: Notes
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)

    @property
    def content(self) -> str:
        return "\n\n".join(text for text in self.texts if text.strip())

    def leave_out(self, what: str, name: object = "") -> None:
        """`[image: not imported]`, and in the report how many."""
        shown = as_title(name)[:_MAX_NAME_CHARACTERS]
        self.texts.append(f"[{what} {shown}: not imported]" if shown else f"[{what}: not imported]")
        self.notes[what] += 1

    def add(self, part: object) -> None:
        """A part in the manner of OpenAI, which Jan, LM Studio and Open WebUI have in common."""
        if isinstance(part, str):
            self.texts.append(as_text(part))
            return
        values = as_object(part)
        kind = as_text(values.get("type")).lower()
        text = values.get("text")
        value = as_text(text) or as_text(as_object(text).get("value"))
        match kind:
            case "text" | "input_text" | "output_text":
                self.texts.append(value or as_text(values.get("content")))
            case "refusal":
                self.texts.append(as_text(values.get("refusal")))
            case "reasoning" | "thinking" | "reasoning_text":
                self.reasoning.append(
                    value or as_text(values.get("thinking")) or as_text(values.get("content"))
                )
            case "tool_call" | "tool_use" | "function_call":
                self.leave_out("tool call", values.get("name") or values.get("tool_name"))
            case "tool_result" | "function_call_output":
                self.leave_out("tool result")
            case _:
                file_type = as_text(values.get("fileType")).lower()
                self.leave_out(
                    _kind_words(f"{kind} {file_type}"), values.get("name") or values.get("filename")
                )

    def add_all(self, content: object) -> PartsText:
        """A text, one part, or a list of both."""
        for part in content if isinstance(content, list) else [content]:
            if part is not None:
                self.add(part)
        return self

    def add_tool_calls(self, calls: object) -> None:
        for call in as_list(calls):
            function = as_object(as_object(call).get("function"))
            self.leave_out("tool call", function.get("name") or as_object(call).get("name"))


def _kind_words(kind: str) -> str:
    for word in ("image", "audio", "video"):
        if word in kind:
            return word
    return "file" if "file" in kind or "document" in kind else "part of unknown kind"


def fenced(text: str, language: str = "") -> str:
    """Code whose fence is longer than any in it."""
    longest = max((len(run) for run in _FENCE_RUN.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    word = re.sub(r"[^\w+#.-]", "", language)[:30]
    return f"{fence}{word}\n{text.rstrip(chr(10))}\n{fence}"


def quoted(lines: str) -> str:
    return "\n".join(f"> {line}" for line in lines.splitlines())


def plural(what: str, count: int) -> str:
    """ "image", 3 -> "3 images"; what follows the noun stays."""
    if count == 1:
        return f"1 {what}"
    noun, separator, rest = what.partition(" ")
    if noun in ("tool", "audio", "web", "citation", "hidden", "unreadable", "custom"):
        second, gap, rest = rest.partition(" ")
        return f"{count} {noun} {second}s{gap}{rest}"
    return f"{count} {noun}s{separator}{rest}"


def notes_text(notes: Notes) -> str:
    """ "not imported: 1 file, 3 images"; empty: all came in."""
    counted = ", ".join(plural(what, count) for what, count in sorted(notes.items()) if count)
    return f"not imported: {counted}" if counted else ""


def first_text(values: Iterable[object]) -> str:
    return next((text for value in values if (text := as_text(value).strip())), "")
