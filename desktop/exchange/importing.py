"""Import: files in, chats handed over one by one, and a report of all that did not come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from desktop.conversations import ConversationId, ConversationStore, NotSaved
from desktop.conversations.whole_chats import (
    ChatColumns,
    ChatUnusable,
    add_whole_chat,
)
from desktop.exchange.chat_reading import Unreadable, read_chats
from desktop.exchange.errors import NotReadable
from desktop.exchange.incoming import IncomingChat
from desktop.exchange.report import ImportReport
from desktop.exchange.sources import Source, UnreadableSource, sources

CANCELLED = "It was stopped; what had come in stays."


@dataclass(frozen=True, slots=True)
class ImportProgress:
    file: str
    num_chats: int


AddChat = Callable[[IncomingChat], ConversationId | None]
"""Puts a whole chat into the database or nothing of it; None: it is there already. Raises ChatUnusable, NotSaved."""


def add_incoming(store: ConversationStore, chat: IncomingChat) -> ConversationId | None:
    """Raises ChatUnusable, NotSaved."""
    return add_whole_chat(store, chat.chat)


def import_chats(
    paths: Sequence[Path],
    columns: ChatColumns,
    add: AddChat,
    on_progress: Callable[[ImportProgress], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> ImportReport:
    """Every chat of these files, folders and ZIPs that is not here yet. Raises nothing for anything that is in them.

    columns: of the database that `add` writes to. A chat that cannot be written ends the import.
    """
    report = ImportReport()
    for source in _files(paths):
        if isinstance(source, UnreadableSource):
            report.unreadable(source.name, source.reason)
            continue
        before = report.num_chats
        try:
            for chat in read_chats(source, columns):
                if is_cancelled():
                    report.stopped = CANCELLED
                    return report
                _take(report, source.name, chat, add)
                on_progress(ImportProgress(source.name, report.num_chats))
        except NotReadable as error:
            report.unreadable(source.name, str(error), is_begun=report.num_chats > before)
        except NotSaved as error:
            report.stopped = f"{error} The chats before it are here."
            return report
        if is_cancelled():
            report.stopped = CANCELLED
            return report
    return report


def _take(report: ImportReport, file: str, chat: IncomingChat | Unreadable, add: AddChat) -> None:
    if isinstance(chat, Unreadable):
        report.skipped(file, chat.title, chat.reason)
        return
    try:
        added = add(chat)
    except ChatUnusable as error:
        report.skipped(file, chat.title, f"a value in it cannot be used ({error})")
        return
    if added is None:
        report.known(file, chat.title)
    else:
        report.imported(file, chat)


def _files(paths: Sequence[Path]) -> Iterator[Source | UnreadableSource]:
    """Of Jan, whose chats are two files each, the one with the messages."""
    for path in paths:
        for source in sources(path):
            if isinstance(source, Source) and PurePosixPath(source.name).name == "thread.json":
                messages = source.sibling("messages.jsonl")
                if messages is None:
                    yield UnreadableSource(source.name, "there is no messages.jsonl beside it")
                # In a folder it comes by itself.
                elif source.name == "thread.json" and not path.is_dir() and path.name == "thread.json":
                    yield messages
                continue
            yield source
