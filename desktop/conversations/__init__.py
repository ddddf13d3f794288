"""What was said, on disk. Imports no Qt; one ConversationStore is opened and used on one thread."""

from desktop.conversations.chat_settings import set_chat_settings, set_template_used
from desktop.conversations.context_memory import (
    ChatContext,
    ContextChoice,
    KeptFit,
    chat_context,
    context_rule,
    keep_fit,
    kept_fit,
    resume_reply,
    set_context_choice,
    set_message_pinned,
)
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
from desktop.conversations.search import SearchHit, SearchResults, remove_deleted_words, search_chats
from desktop.conversations.snippet import Snippet
from desktop.conversations.store import LOCK_TIMEOUT_S, ConversationStore

__all__ = [
    "LOCK_TIMEOUT_S",
    "ChatContext",
    "ChatSettings",
    "ContextChoice",
    "Conversation",
    "ConversationId",
    "ConversationStore",
    "DatabaseUnusable",
    "KeptFit",
    "MessageId",
    "MessageStatus",
    "NoSuchRecord",
    "NotSaved",
    "SearchHit",
    "SearchResults",
    "Snippet",
    "StoreError",
    "StoredMessage",
    "chat_context",
    "context_rule",
    "ids_to_keep",
    "keep_fit",
    "kept_fit",
    "messages_for_engine",
    "remove_deleted_words",
    "resume_reply",
    "search_chats",
    "set_chat_settings",
    "set_context_choice",
    "set_message_pinned",
    "set_template_used",
]
