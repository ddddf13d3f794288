"""What was said, on disk. Imports no Qt; one ConversationStore is opened and used on one thread."""

from desktop.conversations.chat_settings import set_chat_settings, set_template_used
from desktop.conversations.engine_messages import ids_to_keep, messages_for_engine
from desktop.conversations.errors import DatabaseUnusable, NoSuchRecord, NotSaved, StoreError
from desktop.conversations.records import (
    ChatSettings,
    Conversation,
    ConversationId,
    MessageId,
    MessageStatus,
    StoredMessage,
)
from desktop.conversations.store import LOCK_TIMEOUT_S, ConversationStore

__all__ = [
    "LOCK_TIMEOUT_S",
    "ChatSettings",
    "Conversation",
    "ConversationId",
    "ConversationStore",
    "DatabaseUnusable",
    "MessageId",
    "MessageStatus",
    "NoSuchRecord",
    "NotSaved",
    "StoreError",
    "StoredMessage",
    "ids_to_keep",
    "messages_for_engine",
    "set_chat_settings",
    "set_template_used",
]
