"""Where chats stand in the list: folders, the archive, the top. Several chats are changed in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from desktop.conversations.chat_title import one_line
from desktop.conversations.database import reading, writing
from desktop.conversations.errors import NoSuchRecord
from desktop.conversations.records import Conversation, ConversationId, Folder, FolderId
from desktop.conversations.rows import clean_text, now_us
from desktop.conversations.store import ConversationStore


@dataclass(frozen=True, slots=True)
class Listing:
    """conversations: the one that was active last comes first. folders: by name."""

    conversations: tuple[Conversation, ...] = ()
    folders: tuple[Folder, ...] = ()


def read_listing(store: ConversationStore) -> Listing:
    """Raises DatabaseUnusable."""
    with reading():
        rows = store._db.query("SELECT id, name FROM folders")
        folders = [Folder(FolderId(row["id"]), row["name"]) for row in rows]
    folders.sort(key=lambda folder: (folder.name.casefold(), folder.id))
    return Listing(tuple(store.conversations()), tuple(folders))


def create_folder(store: ConversationStore, name: str, chats: Sequence[ConversationId] = ()) -> Folder:
    """With these chats in it. Raises NotSaved, NoSuchRecord."""
    name = one_line(clean_text(name))
    with writing(store._db):
        folder_id = FolderId(store._insert("folders", {"name": name}))
        for chat in chats:
            store._update("conversations", chat, {"folder_id": folder_id})
    return Folder(folder_id, name)


def rename_folder(store: ConversationStore, folder_id: FolderId, name: str) -> None:
    """Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        store._update("folders", folder_id, {"name": one_line(clean_text(name))})


def delete_folder(store: ConversationStore, folder_id: FolderId) -> tuple[Folder, list[ConversationId]]:
    """Its chats stay; what it was, for restore_folder. Raises NotSaved, NoSuchRecord."""
    keys = {"id": folder_id}
    with writing(store._db):
        name = store._row("folders", folder_id)["name"]
        rows = store._db.query("SELECT id FROM conversations WHERE folder_id = :id", keys)
        chats = [ConversationId(row["id"]) for row in rows]
        store._db.execute("DELETE FROM folders WHERE id = :id", keys)
    return Folder(folder_id, name), chats


def restore_folder(store: ConversationStore, folder: Folder, chats: Sequence[ConversationId]) -> None:
    """Those of the chats that are still there are in it again. Raises NotSaved."""
    with writing(store._db):
        store._insert("folders", {"id": folder.id, "name": folder.name})
        for chat in chats:
            try:
                store._update("conversations", chat, {"folder_id": folder.id})
            except NoSuchRecord:
                continue


def move_to_folder(
    store: ConversationStore, chats: Sequence[ConversationId], folder_id: FolderId | None
) -> None:
    """None: out of any folder. Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        if folder_id is not None:
            store._row("folders", folder_id)
        for chat in chats:
            store._update("conversations", chat, {"folder_id": folder_id})


def set_archived(store: ConversationStore, chats: Sequence[ConversationId], is_archived: bool) -> None:
    """Raises NotSaved, NoSuchRecord."""
    _change_all(store, chats, "is_archived", is_archived)


def set_on_top(store: ConversationStore, chats: Sequence[ConversationId], is_on_top: bool) -> None:
    """Raises NotSaved, NoSuchRecord."""
    _change_all(store, chats, "is_on_top", is_on_top)


def delete_chats(store: ConversationStore, chats: Sequence[ConversationId]) -> None:
    """See ConversationStore.delete. Raises NotSaved, NoSuchRecord."""
    _change_all(store, chats, "deleted_at", now_us())


def undelete_chats(store: ConversationStore, chats: Sequence[ConversationId]) -> None:
    """Raises NotSaved, NoSuchRecord."""
    _change_all(store, chats, "deleted_at", None)


def _change_all(
    store: ConversationStore, chats: Sequence[ConversationId], column: str, value: int | None
) -> None:
    with writing(store._db):
        for chat in chats:
            store._update("conversations", chat, {column: value})
