"""A chat as a JSON file: a list of {"role", "content"}."""

from __future__ import annotations

import codecs
from pathlib import Path

import msgspec

from inference.messages import Message
from inference.request import EngineError, ErrorCode


def read_chat_file(path: Path) -> tuple[Message, ...]:
    """Raises EngineError with the reason a file is no chat."""

    def refuse(why: str) -> EngineError:
        return EngineError(ErrorCode.PROMPT_EMPTY, f"{path}: {why}")

    try:
        entries = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except OSError as error:
        raise refuse(error.strerror or "cannot be read") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(f"not JSON ({error})") from error
    if not isinstance(entries, list):
        raise refuse('a list of {"role", "content"} is expected')
    messages = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise refuse(f'message {number} is not {{"role", "content"}} with text content')
        if entry.get("role") not in ("system", "user", "assistant"):
            raise refuse(
                f"message {number} has the role {entry.get('role')!r}, not system, user or assistant"
            )
        messages.append(Message(entry["role"], entry["content"]))
    return tuple(messages)
