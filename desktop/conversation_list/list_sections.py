"""The rows of the list at the left: chats below the headings they stand under."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Literal

from desktop.conversation_list.day_words import day_group
from desktop.conversations import Conversation, FolderId, Listing

HeadingKind = Literal["top", "folder", "day", "archive"]
PINNED_HEADING = "Pinned"
ARCHIVE_HEADING = "Archive"


@dataclass(frozen=True, slots=True)
class Heading:
    """count: of its chats. is_unfolded: those of folders and the archive alone can be folded away."""

    kind: HeadingKind
    text: str
    count: int = 0
    folder_id: FolderId | None = None
    is_unfolded: bool = True

    @property
    def folds(self) -> bool:
        return self.kind in ("folder", "archive")

    @property
    def key(self) -> object:
        """Which heading it is, whatever it says."""
        return self.kind, self.folder_id if self.kind == "folder" else self.text


@dataclass(frozen=True, slots=True)
class ChatRow:
    """is_indented: it stands below a heading that folds."""

    conversation: Conversation
    is_indented: bool = False

    @property
    def key(self) -> object:
        return self.conversation.id


Row = Heading | ChatRow


def list_rows(listing: Listing, today: date, turned: Collection[object]) -> list[Row]:
    """turned: keys of headings that are folded away where they are usually not, or the other way round.

    Chats on top first, then folders, then the other chats by day, then the archive, which is usually folded away.
    """
    chats = [chat for chat in listing.conversations if not chat.is_archived]
    archived = [chat for chat in listing.conversations if chat.is_archived]
    rows: list[Row] = []
    on_top = [chat for chat in chats if chat.is_on_top]
    if on_top:
        rows += [Heading("top", PINNED_HEADING), *map(ChatRow, on_top)]
    others = [chat for chat in chats if not chat.is_on_top]
    for folder in listing.folders:
        inside = [chat for chat in others if chat.folder_id == folder.id]
        heading = Heading("folder", folder.name, len(inside), folder.id)
        rows += _folding(heading, inside, is_unfolded=heading.key not in turned)
    loose = (chat for chat in others if chat.folder_id is None)
    for words, group in groupby(loose, lambda chat: day_group(chat.updated_at, today)):
        rows += [Heading("day", words), *map(ChatRow, group)]
    if archived:
        heading = Heading("archive", ARCHIVE_HEADING, len(archived))
        rows += _folding(heading, archived, is_unfolded=heading.key in turned)
    return rows


def _folding(heading: Heading, chats: Iterable[Conversation], *, is_unfolded: bool) -> list[Row]:
    heading = Heading(heading.kind, heading.text, heading.count, heading.folder_id, is_unfolded)
    return [heading, *(ChatRow(chat, is_indented=True) for chat in chats if is_unfolded)]
