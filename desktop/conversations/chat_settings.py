"""Writes of what a chat sets for its replies, and of what a reply was written with."""

from __future__ import annotations

from desktop.conversations.database import writing
from desktop.conversations.records import ChatSettings, ConversationId, MessageId
from desktop.conversations.rows import encode_settings, encode_template_use
from desktop.conversations.store import ConversationStore
from inference import TemplateUse


def set_chat_settings(
    store: ConversationStore, conversation_id: ConversationId, settings: ChatSettings
) -> None:
    """Raises NotSaved, NoSuchRecord."""
    store._change_conversation(conversation_id, dict(encode_settings(settings)))


def set_template_used(store: ConversationStore, message_id: MessageId, template: TemplateUse) -> None:
    """Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        store._update("messages", message_id, dict(encode_template_use(template)))
