"""A chat as Markdown: the branch that is shown, readable as text and in any viewer."""

from __future__ import annotations

import html
import re
from pathlib import Path

from desktop.conversations.rows import from_us
from desktop.conversations.whole_chats import TreeMessage, WholeChat

_END_TAG = re.compile(r"<(/\s*details)", re.IGNORECASE)
_SPEAKERS = {"user": "You", "system": "System"}


def markdown_of(chat: WholeChat, *, with_reasoning: bool) -> str:
    """Headings say who speaks. What a reply thought is folded away before it."""
    parts = [f"# {title_of(chat)}", f"*{date_of(chat)}*"]
    if prompt := chat.columns.get("system_prompt"):
        parts += ["## System", closed_fences(prompt)]
    for message in shown_branch(chat):
        parts.append(f"## {speaker_of(message)}")
        reasoning = message.columns.get("reasoning")
        if with_reasoning and reasoning:
            # The blank lines make it Markdown again inside the HTML.
            text = closed_fences(_without_end_tag(reasoning))
            parts.append(f"<details>\n<summary>{reasoning_title(message)}</summary>\n\n{text}\n\n</details>")
        if content := message.columns["content"]:
            parts.append(closed_fences(content))
        if note := ending_of(message):
            parts.append(f"*{_escaped(note)}*")
    return "\n\n".join(parts) + "\n"


def shown_branch(chat: WholeChat) -> list[TreeMessage]:
    """From the first message to the head."""
    branch: list[TreeMessage] = []
    at = chat.head
    while at is not None:
        branch.append(chat.messages[at])
        at = chat.messages[at].parent
    return branch[::-1]


def title_of(chat: WholeChat) -> str:
    return " ".join(str(chat.columns["title"]).split()) or "Untitled chat"


def date_of(chat: WholeChat) -> str:
    """When it began, in this computer's time."""
    return from_us(chat.columns["created_at"]).astimezone().strftime("%Y-%m-%d %H:%M")


def speaker_of(message: TreeMessage) -> str:
    role = message.columns["role"]
    if role in _SPEAKERS:
        return _SPEAKERS[role]
    model = " ".join(str(message.columns.get("model_path") or "").split())
    return Path(model).name.removesuffix(".gguf") or "Assistant"


def reasoning_title(message: TreeMessage) -> str:
    seconds = message.columns.get("reasoning_s") or 0.0
    if message.columns.get("reasoning_was_cut"):
        return "Thinking was cut off"
    return f"Thought for {seconds:.1f} s" if seconds else "Thoughts"


def ending_of(message: TreeMessage) -> str:
    """Why a reply is not a whole one; empty: it is."""
    error = " ".join(str(message.columns.get("error") or "").split())
    words = {
        "cancelled": "Stopped.",
        "interrupted": error or "This reply was interrupted.",
        "failed": error or "This reply failed.",
        "streaming": "This reply was still being written.",
    }
    return words.get(message.columns["status"], "")


def closed_fences(text: str) -> str:
    """The text with a fence that nothing closes (a reply that was stopped) closed, so that it ends with the message."""
    fence = ""
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        stripped = line.lstrip(" ")
        run = _run(stripped)
        if indent > 3 or len(run) < 3:
            continue
        rest = stripped[len(run) :]
        if not fence:
            # An info string with a backtick makes it code within a line.
            fence = run if run[0] == "~" or "`" not in rest else ""
        elif run[0] == fence[0] and len(run) >= len(fence) and not rest.strip():
            fence = ""
    if not fence:
        return text.strip("\n")
    return f"{text.strip(chr(10))}\n{fence}"


def _run(line: str) -> str:
    first = line[:1]
    if first not in ("`", "~") or not first:
        return ""
    return line[: len(line) - len(line.lstrip(first))]


def _without_end_tag(text: str) -> str:
    """Text that cannot end the element that folds it away."""
    return _END_TAG.sub(r"&lt;\1", text)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("*", "\\*").replace("_", "\\_")
