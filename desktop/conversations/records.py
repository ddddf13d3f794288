"""Conversations and messages as they are stored: with ids, parents, times and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from inference import (
    FinishReason,
    Miss,
    OptionValue,
    PromptCounts,
    Reasoning,
    RequestTimings,
    Role,
    SamplingParams,
    TemplateUse,
    TokenId,
)

ConversationId = NewType("ConversationId", int)
MessageId = NewType("MessageId", int)
FolderId = NewType("FolderId", int)


class MessageStatus(StrEnum):
    STREAMING = "streaming"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    """The user stopped it."""
    INTERRUPTED = "interrupted"
    """The worker or the app died while it was written; `error` says which."""
    FAILED = "failed"
    """Refused or ended by an error; `error` says why."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a chat sets for its next replies.

    system_prompt: stands before all of its messages; empty: none. sampling: values of SamplingParams by name; what it
    does not name is taken from the settings, and then from the model. template: see GenerationRequest.chat_template.
    template_options: see there too.
    """

    system_prompt: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    template_options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A tree of messages and the branch of it that is shown. All datetimes are UTC.

    updated_at: when its newest message was added or ended; renaming and drafts leave it be.
    head_id: the last message of the branch shown; None: the branch is empty.
    deleted_at: None unless the user deleted it; it can be brought back until it is purged.
    owner: what the engine knows the chat by, random and never given again.
    is_private: the engine keeps nothing of it on disk; its messages are kept here like any others.
    is_pinned: what the engine keeps of it is never evicted.
    folder_id: None: it lies in no folder. is_archived: put away, out of sight. is_on_top: listed first.
    """

    id: ConversationId
    title: str
    created_at: datetime
    updated_at: datetime
    model_path: str | None
    settings: ChatSettings
    head_id: MessageId | None
    draft: str
    deleted_at: datetime | None
    owner: str
    is_private: bool
    is_pinned: bool
    folder_id: FolderId | None
    is_archived: bool
    is_on_top: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """Of chats; the user's own, and nothing to the engine."""

    id: FolderId
    name: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a tree: parent_id None is a first message; messages of one parent are alternatives.

    token_ids: see Message. seed: the one really used. Everything after `error` is None for what the user wrote.
    updated_at: when its text was last saved. bytes_read: from the KV store; None for a reply from before receipts.
    miss: why the rest of the prompt was read by the model. reasoning: no part of content, nor of later prompts.
    template: what the prompt was written with.
    """

    id: MessageId
    conversation_id: ConversationId
    parent_id: MessageId | None
    role: Role
    content: str
    token_ids: tuple[TokenId, ...] | None
    status: MessageStatus
    created_at: datetime
    updated_at: datetime
    error: str | None
    model_path: str | None
    sampling: SamplingParams | None
    seed: int | None
    finish_reason: FinishReason | None
    counts: PromptCounts | None
    timings: RequestTimings | None
    num_generation_tokens: int | None
    decode_tokens_per_second: float | None
    bytes_read: int | None
    miss: Miss | None
    reasoning: Reasoning | None
    template: TemplateUse | None
