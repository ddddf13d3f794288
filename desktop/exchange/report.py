"""What came in, what did not, and why: in one line, and in full to be read and copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from desktop.exchange.content_parts import notes_text
from desktop.exchange.foreign_values import as_object, as_title
from desktop.exchange.incoming import IncomingChat

MAX_ENTRIES = 2_000
"""More lines than anybody reads; the rest is counted."""

Outcome = Literal["imported", "already here", "not imported"]


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """A chat, or a file where `title` is empty. reasons: why it did not come in, or what of it did not."""

    outcome: Outcome
    file: str
    title: str
    reasons: tuple[str, ...] = ()

    def line(self) -> str:
        name = f"{self.title} ({self.file})" if self.title else self.file
        return f"{name}: {'; '.join(self.reasons)}" if self.reasons else name


@dataclass(slots=True)
class ImportReport:
    """Counts are of chats, num_unreadable and num_cut (not read to their end) of files. stopped: why the import ended early; empty: it did not."""

    num_imported: int = 0
    num_messages: int = 0
    num_known: int = 0
    num_skipped: int = 0
    num_unreadable: int = 0
    num_cut: int = 0
    kinds: set[str] = field(default_factory=set)
    entries: list[ReportEntry] = field(default_factory=list)
    num_left_out: int = 0
    stopped: str = ""

    @property
    def num_chats(self) -> int:
        """That are here now."""
        return self.num_imported + self.num_known

    @property
    def is_success(self) -> bool:
        """Chats came in, or all of them were here. Nothing at all is no success."""
        return not self.stopped and self.num_chats > 0

    def imported(self, file: str, chat: IncomingChat) -> None:
        self.num_imported += 1
        self.num_messages += len(chat.chat.messages)
        self.kinds.add(chat.kind)
        missing = notes_text(chat.notes)
        self._add(ReportEntry("imported", file, chat.title or "Untitled", (missing,) if missing else ()))

    def known(self, file: str, title: str) -> None:
        self.num_known += 1
        self._add(ReportEntry("already here", file, title or "Untitled"))

    def skipped(self, file: str, title: str, reason: str) -> None:
        self.num_skipped += 1
        self._add(ReportEntry("not imported", file, title or "Untitled", (reason,)))

    def unreadable(self, file: str, reason: str, *, is_begun: bool = False) -> None:
        """is_begun: chats of it had come in before."""
        if is_begun:
            self.num_cut += 1
        else:
            self.num_unreadable += 1
        self._add(ReportEntry("not imported", file, "", (reason,)))

    def summary(self) -> str:
        """One line."""
        if self.num_imported:
            source = f" from {', '.join(sorted(self.kinds))}" if self.kinds else ""
            what = f"Imported {_chats(self.num_imported)} ({_messages(self.num_messages)}){source}"
        else:
            what = "No chat was imported"
        more = []
        if self.num_known:
            more.append(f"{self.num_known:,} {'was' if self.num_known == 1 else 'were'} here already")
        if self.num_skipped:
            more.append(f"{self.num_skipped:,} not imported")
        if self.num_unreadable:
            more.append(f"{_files(self.num_unreadable)} without readable chats")
        if self.num_cut:
            more.append(f"{_files(self.num_cut)} not read to the end")
        parts = sum(1 for entry in self.entries if entry.outcome == "imported" and entry.reasons)
        if parts:
            more.append(f"{parts:,} came in with parts missing")
        text = "; ".join([what, *more]) + "."
        return f"{text} {self.stopped}" if self.stopped else text

    def text(self) -> str:
        return "\n\n".join(part for part in (self.summary(), self.details()) if part)

    def details(self) -> str:
        """A section an outcome; empty: there was nothing."""
        sections = [
            "\n".join([heading, *(f"    {entry.line()}" for entry in entries)])
            for heading, entries in self.sections()
        ]
        if self.num_left_out:
            sections.append(f"… and {self.num_left_out:,} more that are not listed.")
        return "\n\n".join(sections)

    def sections(self) -> list[tuple[str, list[ReportEntry]]]:
        """With their headings, what one may have to do something about first; none is empty."""
        partly = [entry for entry in self.entries if entry.outcome == "imported" and entry.reasons]
        wholly = [entry for entry in self.entries if entry.outcome == "imported" and not entry.reasons]
        sections = (
            ("Not imported", [entry for entry in self.entries if entry.outcome == "not imported"]),
            ("Imported, but not all of it", partly),
            ("Imported", wholly),
            ("Here already", [entry for entry in self.entries if entry.outcome == "already here"]),
        )
        return [section for section in sections if section[1]]

    def _add(self, entry: ReportEntry) -> None:
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(entry)
        else:
            self.num_left_out += 1


def title_of(element: object) -> str:
    """What to call something that is no chat."""
    values = as_object(element)
    names = (values.get("title"), values.get("name"), as_object(values.get("chat")).get("title"))
    return next((title for name in names if (title := as_title(name))), "")


def _chats(count: int) -> str:
    return f"{count:,} chat{'s' * (count != 1)}"


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"
