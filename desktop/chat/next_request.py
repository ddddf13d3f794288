"""What the open chat would ask of its model next, for those who count or read it before it is asked."""

from __future__ import annotations

from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.chat_request import chat_request
from desktop.chat.open_chat import OpenChat
from desktop.conversations import ChatContext, ConversationStore, DatabaseUnusable, StoredMessage
from desktop.model_loading import ModelLoading
from inference import GenerationRequest


async def next_request(
    open_chat: OpenChat,
    chats: ConversationTasks,
    models: ModelLoading,
    *,
    draft: str | None = None,
    context: ChatContext | None = None,
) -> GenerationRequest | None:
    """The chat with the draft as the user's message; as it stands without one. context: instead of the chat's own.

    None: its model is not the loaded one, there is nothing to ask, the chats cannot be read, or another chat was opened
    meanwhile.
    """
    chat_id, model = open_chat.id, models.loaded_model(open_chat.model_path)
    if model is None:
        return None
    branch: list[StoredMessage] = []
    if chat_id is not None:
        try:
            branch = await chats.run(ConversationStore.branch, chat_id)
        except DatabaseUnusable:
            return None
    if open_chat.id != chat_id or (not branch and draft is None):
        return None
    return chat_request(
        # As it is set now, which may be later than when the branch was asked for.
        open_chat.conversation,
        branch,
        model.config,
        draft=draft,
        default_template=open_chat.default_template,
        is_private=open_chat.is_private,
        context=context or open_chat.branch.context,
    )
