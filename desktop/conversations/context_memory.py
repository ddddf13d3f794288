"""What of a chat the model is given when its context cannot hold it all, as it is kept with chat and replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType

from desktop.conversations.database import reading, writing
from desktop.conversations.engine_messages import sources_for_engine
from desktop.conversations.records import ConversationId, MessageId, MessageStatus, StoredMessage
from desktop.conversations.rows import clean_text, encode_sampling
from desktop.conversations.store import ConversationStore
from inference import ContextFit, ContextPolicy, ContextRule, Message, SamplingParams


class ContextChoice(StrEnum):
    """What happens to a message that does not fit into the context any more."""

    ASK = "ask"
    """It stays, with what can be done under it."""
    DROP_OLDEST = "drop oldest"
    STOP = "stop"
    """It goes back to the composer."""


@dataclass(frozen=True, slots=True)
class KeptFit:
    """A ContextFit with messages in place of indices. first_seen: the first one that is sent, apart from the system
    prompt and what is pinned; None: the chat is sent whole. is_allowed False: the reply was refused, and the rest tells
    what leaving messages out would do."""

    num_prompt_tokens: int
    num_sent_tokens: int
    n_ctx: int
    n_ctx_train: int
    kv_bytes_per_token: int
    is_allowed: bool
    has_system_prompt: bool = False
    has_pinned: bool = False
    first_seen: MessageId | None = None
    left_out: tuple[MessageId, ...] = ()

    @property
    def is_possible(self) -> bool:
        return self.num_sent_tokens <= self.n_ctx


@dataclass(frozen=True, slots=True)
class ChatContext:
    """fits: by reply."""

    choice: ContextChoice = ContextChoice.ASK
    pinned: frozenset[MessageId] = frozenset()
    fits: Mapping[MessageId, KeptFit] = field(default_factory=lambda: MappingProxyType({}))

    def last_fit(self, branch: Sequence[MessageId]) -> KeptFit | None:
        """Of the last reply of the branch that was given to the model."""
        fits = (self.fits.get(message) for message in reversed(branch))
        return next((fit for fit in fits if fit is not None and fit.is_allowed), None)


def chat_context(store: ConversationStore, conversation_id: ConversationId) -> ChatContext:
    """Raises DatabaseUnusable."""
    key = {"id": conversation_id}
    with reading():
        choice = ContextChoice.ASK
        for row in store._db.query("SELECT context_choice FROM conversations WHERE id = :id", key):
            choice = ContextChoice(row["context_choice"])
        marked = list(
            store._db.query(
                "SELECT id, is_pinned, context_fit FROM messages WHERE conversation_id = :id "
                "AND (is_pinned OR context_fit IS NOT NULL)",
                key,
            )
        )
    fits = {MessageId(row["id"]): _decode(row["context_fit"]) for row in marked if row["context_fit"]}
    return ChatContext(choice, frozenset(MessageId(row["id"]) for row in marked if row["is_pinned"]), fits)


def set_context_choice(
    store: ConversationStore, conversation_id: ConversationId, choice: ContextChoice
) -> None:
    """Raises NotSaved, NoSuchRecord."""
    store._change_conversation(conversation_id, {"context_choice": choice.value})


def set_message_pinned(store: ConversationStore, message_id: MessageId, is_pinned: bool) -> None:
    """Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        store._update("messages", message_id, {"is_pinned": is_pinned})


def keep_fit(store: ConversationStore, reply_id: MessageId, fit: KeptFit) -> None:
    """Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        store._update("messages", reply_id, {"context_fit": json.dumps(asdict(fit))})


def resume_reply(
    store: ConversationStore, reply_id: MessageId, model_path: str, sampling: SamplingParams
) -> StoredMessage:
    """A reply that has ended goes on: it is streaming again and keeps its text. Raises NotSaved, NoSuchRecord."""
    with writing(store._db):
        store._update(
            "messages",
            reply_id,
            {
                "status": MessageStatus.STREAMING,
                "error": None,
                "model_path": clean_text(model_path),
                "sampling": encode_sampling(sampling),
            },
        )
        return store._message(reply_id)


def context_rule(
    context: ChatContext,
    branch: Sequence[StoredMessage],
    messages: Sequence[Message],
    *,
    may_drop: bool = False,
    num_drafts: int = 0,
    begun: MessageId | None = None,
) -> ContextRule:
    """For a request of `messages`, which are those of the branch, what stands in front of them, and num_drafts behind.

    may_drop: this once, whatever the chat's choice. begun: the reply that is to go on.
    """
    sources = sources_for_engine(branch)
    front = len(messages) - num_drafts - len(sources)
    pinned = tuple(
        front + index
        for index, ids in enumerate(sources)
        if any(message_id in context.pinned for message_id in ids)
    )
    ids = [message.id for message in branch]
    fit = context.last_fit([*ids, begun] if begun is not None else ids)
    former_cut = 0
    if fit is not None and fit.first_seen is not None:
        former_cut = next((front + i for i, source in enumerate(sources) if fit.first_seen in source), 0)
    drops = may_drop or context.choice is ContextChoice.DROP_OLDEST
    return ContextRule(ContextPolicy.DROP_OLDEST if drops else ContextPolicy.REFUSE, pinned, former_cut)


def kept_fit(fit: ContextFit, branch: Sequence[StoredMessage], num_messages: int) -> KeptFit:
    """num_messages: of the request, whose last ones are the branch's."""
    sources = sources_for_engine(branch)
    front = num_messages - len(sources)
    left_out = [sources[index - front] for index in fit.left_out if index >= front]
    first_seen = sources[fit.cut - front][0] if fit.left_out and fit.cut >= front else None
    return KeptFit(
        fit.num_prompt_tokens,
        fit.num_sent_tokens,
        fit.n_ctx,
        fit.n_ctx_train,
        fit.kv_bytes_per_token,
        fit.is_allowed,
        front > 0,
        any(index not in fit.left_out for index in range(front, fit.cut)),
        first_seen,
        tuple(message_id for ids in left_out for message_id in ids),
    )


def _decode(text: str) -> KeptFit:
    stored = json.loads(text)
    return KeptFit(**{**stored, "left_out": tuple(stored["left_out"])})
