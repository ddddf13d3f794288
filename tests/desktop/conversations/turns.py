"""Turns of a chat in as few words as a test wants to spend on them."""

from __future__ import annotations

from desktop.conversations import Conversation, ConversationStore, MessageId, MessageStatus
from inference import SamplingParams, TokenId

SAMPLING = SamplingParams(temperature=0.3, top_k=40, seed=7, max_tokens=100)
IDS = tuple(map(TokenId, (1, 2, 2**31 - 1)))


def ask(
    store: ConversationStore, conversation: Conversation, content: str = "Why is the sky blue?"
) -> MessageId:
    """A user message after the head."""
    head_id = store.conversation(conversation.id).head_id
    return store.add_user_message(conversation.id, content, head_id).id


def begin(store: ConversationStore, conversation: Conversation, parent_id: MessageId) -> MessageId:
    return store.begin_reply(conversation.id, parent_id, "/models/a.gguf", SAMPLING).id


def answer(
    store: ConversationStore, conversation: Conversation, parent_id: MessageId, text: str
) -> MessageId:
    reply_id = begin(store, conversation, parent_id)
    return store.finish_reply(reply_id, status=MessageStatus.COMPLETE, content=text, token_ids=IDS).id
