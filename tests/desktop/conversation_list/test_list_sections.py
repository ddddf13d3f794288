"""Which chats stand under which heading."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from desktop.conversation_list.list_sections import ChatRow, Heading, list_rows
from desktop.conversations import ChatSettings, Conversation, ConversationId, Folder, FolderId, Listing

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
TODAY = NOW.astimezone().date()
WORK = Folder(FolderId(1), "Work")


def chat(number: int, days_ago: int = 0, **changes: object) -> Conversation:
    when = NOW - timedelta(days=days_ago)
    plain = Conversation(
        id=ConversationId(number),
        title=str(number),
        created_at=when,
        updated_at=when,
        model_path=None,
        settings=ChatSettings(),
        head_id=None,
        draft="",
        deleted_at=None,
        owner=str(number),
        is_private=False,
        is_pinned=False,
        folder_id=None,
        is_archived=False,
        is_on_top=False,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def told(
    *chats: Conversation, folders: tuple[Folder, ...] = (), turned: set[object] | None = None
) -> list[str]:
    rows = list_rows(Listing(chats, folders), TODAY, turned or set())
    return [
        f"{row.text} {row.count}"
        if isinstance(row, Heading) and row.folds
        else row.text
        if isinstance(row, Heading)
        else f"  {row.conversation.title}"
        if row.is_indented
        else row.conversation.title
        for row in rows
    ]


def test_nothing_has_no_headings() -> None:
    assert told() == []


def test_days_have_one_heading_each() -> None:
    chats = [chat(1), chat(2), chat(3, 1), chat(4, 3), chat(5, 40), chat(6, 400)]
    assert told(*chats) == [
        *("Today", "1", "2"),
        *("Yesterday", "3"),
        *("Previous 7 days", "4"),
        *("January", "5"),
        *("February 2025", "6"),
    ]


def test_top_then_folders_then_days_then_the_archive() -> None:
    chats = [
        chat(1),
        chat(2, folder_id=WORK.id),
        chat(3, 1, is_on_top=True, folder_id=WORK.id),
        chat(4, 2, is_archived=True, is_on_top=True),
        chat(5, 3, is_archived=True, folder_id=WORK.id),
    ]
    assert told(*chats, folders=(WORK,)) == ["Pinned", "3", "Work 1", "  2", "Today", "1", "Archive 2"]


def test_folders_and_the_archive_fold() -> None:
    chats = [chat(1, folder_id=WORK.id), chat(2, is_archived=True)]
    assert told(*chats, folders=(WORK,)) == ["Work 1", "  1", "Archive 1"]
    archive = Heading("archive", "Archive").key
    folder = Heading("folder", "whatever it is called", folder_id=WORK.id).key
    assert told(*chats, folders=(WORK,), turned={archive, folder}) == ["Work 1", "Archive 1", "  2"]


def test_an_empty_folder_is_there_to_be_filled() -> None:
    assert told(folders=(WORK,)) == ["Work 0"]


def test_the_same_chats_are_other_rows_on_the_next_day() -> None:
    rows = list_rows(Listing((chat(1),)), date(2026, 3, 11), ())
    assert rows == [Heading("day", "Previous 7 days"), ChatRow(chat(1))]
