"""From a message to the branch of its chat that shows it."""

from __future__ import annotations

from desktop.conversations.database import writing
from desktop.conversations.records import ConversationId, MessageId
from desktop.conversations.store import ConversationStore

_NEWEST_BELOW = """
    WITH RECURSIVE below (id) AS (
        SELECT :message_id
        UNION ALL
        SELECT messages.id FROM below JOIN messages
        ON messages.conversation_id = :conversation_id AND messages.parent_id = below.id
    )
    SELECT max(below.id) AS id FROM below
"""


def is_on_branch(store: ConversationStore, conversation_id: ConversationId, message_id: MessageId) -> bool:
    """Whether the branch that is shown has the message. Raises DatabaseUnusable."""
    return any(message.id == message_id for message in store.branch(conversation_id))


def show_branch_of(store: ConversationStore, conversation_id: ConversationId, message_id: MessageId) -> None:
    """The newest of the branches through a message becomes the one that is shown. Raises NotSaved, NoSuchRecord."""
    keys = {"conversation_id": conversation_id, "message_id": message_id}
    with writing(store._db):
        store._message_of(conversation_id, message_id)
        # A child has always a greater id than its parent, so the greatest one is a last message.
        [[newest]] = store._db.execute(_NEWEST_BELOW, keys).fetchall()
        store._update("conversations", conversation_id, {"head_id": newest})
