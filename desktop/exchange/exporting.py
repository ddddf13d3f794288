"""Export: chats out to one file, which is there as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from desktop.conversations.whole_chats import WholeChat
from desktop.exchange import everwarm_json
from desktop.exchange.errors import ExchangeError
from desktop.exchange.html_export import html_contents, html_end, html_of, html_start
from desktop.exchange.markdown_export import markdown_of

_MAX_NAME_CHARACTERS = 60


class ExportFormat(StrEnum):
    MARKDOWN = "md"
    """The branch that is shown."""
    JSON = "json"
    """Everything."""
    HTML = "html"
    """The branch that is shown."""


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """with_reasoning: whether what replies thought is in Markdown and HTML; in JSON it is always."""

    format: ExportFormat
    with_reasoning: bool = True


def export_chats(
    chats: Iterable[WholeChat],
    titles: Sequence[str],
    target: Path,
    choice: ExportChoice,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> int | None:
    """How many chats there are in the file now; None: it was cancelled, and the file is as it was.

    chats: read one by one while it is written. titles: of all of them, as far as they are known. Raises ExchangeError.
    """
    num_chats = 0
    try:
        with _written_whole(target) as file:
            file.write(_start(titles, choice))
            for chat in chats:
                if is_cancelled():
                    raise _Cancelled
                num_chats += 1
                file.write(_chat(chat, num_chats, choice))
            if is_cancelled():
                raise _Cancelled
            file.write(_end(choice))
    except _Cancelled:
        return None
    except OSError as error:
        raise ExchangeError(
            f"{target.name} could not be written ({error.strerror or error}). Your chats are as they were; "
            "choose another folder or free some space, then export again."
        ) from error
    return num_chats


def suggested_name(title: str, format: ExportFormat) -> str:
    """A file name for a chat, which every system takes."""
    words = "".join(c if c.isalnum() or c in " -_" else " " for c in title)
    name = " ".join(words.split())[:_MAX_NAME_CHARACTERS].strip()
    return f"{name or 'chat'}.{format.value}"


class _Cancelled(Exception):
    pass


def _start(titles: Sequence[str], choice: ExportChoice) -> str:
    match choice.format:
        case ExportFormat.JSON:
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            head = {
                "format": everwarm_json.FILE_MARK,
                "version": everwarm_json.VERSION,
                "exported_at": now,
            }
            return f'{json.dumps(head)[:-1]}, "chats": ['
        case ExportFormat.HTML:
            shown = [" ".join(title.split()) or "Untitled chat" for title in titles]
            contents = html_contents(shown) if len(shown) > 1 else ""
            return html_start(shown[0] if len(shown) == 1 else "Chats") + contents
        case ExportFormat.MARKDOWN:
            return ""


def _chat(chat: WholeChat, number: int, choice: ExportChoice) -> str:
    match choice.format:
        case ExportFormat.JSON:
            # A chat a line: such files can be compared and searched by lines.
            text = json.dumps(everwarm_json.write_chat(chat), ensure_ascii=False)
            return f"{',' if number > 1 else ''}\n{text}"
        case ExportFormat.HTML:
            return html_of(chat, number, with_reasoning=choice.with_reasoning)
        case ExportFormat.MARKDOWN:
            separator = "\n---\n\n" if number > 1 else ""
            return separator + markdown_of(chat, with_reasoning=choice.with_reasoning)


def _end(choice: ExportChoice) -> str:
    match choice.format:
        case ExportFormat.JSON:
            return "\n]}\n"
        case ExportFormat.HTML:
            return html_end()
        case ExportFormat.MARKDOWN:
            return ""


@contextlib.contextmanager
def _written_whole(target: Path) -> Iterator[TextIO]:
    """A new file that takes the target's place when the block is left; chats are private, so it is its owner's only."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    partial = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
