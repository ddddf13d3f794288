"""Titles that a model makes: only where nobody has typed one."""

from __future__ import annotations

from desktop.conversations.chat_title import title_from
from desktop.conversations.database import reading, writing
from desktop.conversations.records import ConversationId
from desktop.conversations.rows import clean_text
from desktop.conversations.store import ConversationStore

_FIRST_MESSAGE = """
    SELECT content FROM messages
    WHERE conversation_id = :id AND parent_id IS NULL AND role = 'user' ORDER BY id LIMIT 1
"""


def wants_title(store: ConversationStore, conversation_id: ConversationId) -> bool:
    """Whether the chat is still called by the first words of its first message. Raises DatabaseUnusable."""
    key = {"id": conversation_id}
    with reading():
        for row in store._db.query(
            "SELECT title, titled_by, deleted_at FROM conversations WHERE id = :id", key
        ):
            if row["titled_by"] != "words" or row["deleted_at"] is not None:
                return False
            first = list(store._db.query(_FIRST_MESSAGE, key))
            # Chats from before this was kept may have been named by hand, and imported ones by somebody else.
            return bool(first) and title_from(first[0]["content"]) == row["title"]
    return False


def set_model_title(store: ConversationStore, conversation_id: ConversationId, title: str) -> bool:
    """False: somebody has named the chat meanwhile, or it is gone. Raises NotSaved."""
    with writing(store._db):
        if not wants_title(store, conversation_id):
            return False
        store._update("conversations", conversation_id, {"title": clean_text(title), "titled_by": "model"})
    return True
