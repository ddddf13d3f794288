"""What the engine is asked for a chat: a reply, and what is read ahead of it, are the same prompt only if made alike."""

from __future__ import annotations

from collections.abc import Sequence

from desktop.conversations import (
    ChatContext,
    ChatSettings,
    Conversation,
    StoredMessage,
    context_rule,
    messages_for_engine,
)
from inference import GenerationRequest, Message, ModelConfig, SamplingParams


def chat_request(
    conversation: Conversation | None,
    branch: Sequence[StoredMessage],
    model: ModelConfig,
    *,
    draft: str | None = None,
    sampling: SamplingParams | None = None,
    default_template: str | None = None,
    is_private: bool = False,
    context: ChatContext | None = None,
    may_drop: bool = False,
    begun: StoredMessage | None = None,
) -> GenerationRequest:
    """conversation None: a new chat without a row; is_private is for that one, others know it themselves.
    draft: follows the branch as the user's next message. sampling: not needed where only the prompt is read.
    default_template: where the chat chooses none. context: the chat's, and what its last replies were given; may_drop:
    the oldest turns may be left out, whatever the chat says. begun: the reply that is to go on."""
    settings = ChatSettings() if conversation is None else conversation.settings
    messages = messages_for_engine(branch, settings.system_prompt)
    if draft is not None:
        messages = (*messages, Message("user", draft))
    return GenerationRequest(
        model=model,
        messages=messages,
        sampling=sampling or SamplingParams(),
        owner=None if conversation is None else conversation.owner,
        is_private=is_private if conversation is None else conversation.is_private,
        chat_template=settings.template or default_template,
        template_options=settings.template_options,
        # A template that writes the date then writes the same one for as long as the chat lives.
        template_time=None if conversation is None else conversation.created_at.timestamp(),
        begun=None if begun is None else Message("assistant", begun.content, begun.token_ids),
        context=context_rule(
            context or ChatContext(),
            branch,
            messages,
            may_drop=may_drop,
            num_drafts=0 if draft is None else 1,
            begun=None if begun is None else begun.id,
        ),
    )
