"""Folders, the archive and the top of the list, as they are stored."""

from __future__ import annotations

import pytest

from desktop.conversations import (
    ConversationId,
    ConversationStore,
    FolderId,
    NoSuchRecord,
    create_folder,
    delete_chats,
    delete_folder,
    move_to_folder,
    read_listing,
    rename_folder,
    restore_folder,
    set_archived,
    set_on_top,
    undelete_chats,
)


def test_folders_are_listed_by_name(store: ConversationStore) -> None:
    for name in ("work", "Âme", "  Home \n office "):
        create_folder(store, name)
    assert [folder.name for folder in read_listing(store).folders] == ["Home office", "work", "Âme"]


def test_a_folder_is_made_around_chats_renamed_and_emptied(store: ConversationStore) -> None:
    one, two = store.create_conversation("One"), store.create_conversation("Two")
    folder = create_folder(store, "Work", [one.id])
    move_to_folder(store, [two.id], folder.id)
    rename_folder(store, folder.id, "Play")
    listing = read_listing(store)
    assert {chat.folder_id for chat in listing.conversations} == {folder.id}
    assert [each.name for each in listing.folders] == ["Play"]
    move_to_folder(store, [one.id], None)
    assert store.conversation(one.id).folder_id is None


def test_deleting_a_folder_keeps_its_chats_and_can_be_taken_back(store: ConversationStore) -> None:
    chats = [store.create_conversation(title).id for title in ("One", "Two")]
    folder = create_folder(store, "Work", chats)
    deleted = delete_folder(store, folder.id)
    assert deleted == (folder, chats)
    assert [store.conversation(each).folder_id for each in chats] == [None, None]
    assert read_listing(store).folders == ()
    restore_folder(store, *deleted)
    assert [store.conversation(each).folder_id for each in chats] == [folder.id, folder.id]
    assert store.integrity_check() == []


def test_several_chats_are_changed_together_or_not_at_all(store: ConversationStore) -> None:
    chats = [store.create_conversation(title).id for title in ("One", "Two")]
    for change in (set_archived, set_on_top):
        change(store, chats, True)
    assert all(chat.is_archived and chat.is_on_top for chat in read_listing(store).conversations)
    with pytest.raises(NoSuchRecord):
        set_archived(store, [chats[0], ConversationId(99)], False)
    assert store.conversation(chats[0]).is_archived
    delete_chats(store, chats)
    assert read_listing(store).conversations == ()
    undelete_chats(store, chats)
    assert len(read_listing(store).conversations) == 2


def test_there_must_be_such_a_folder(store: ConversationStore) -> None:
    chat = store.create_conversation("One")
    for change in (
        lambda: move_to_folder(store, [chat.id], FolderId(7)),
        lambda: rename_folder(store, FolderId(7), "x"),
        lambda: delete_folder(store, FolderId(7)),
    ):
        with pytest.raises(NoSuchRecord):
            change()
