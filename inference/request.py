"""What a caller asks of the engine, and how it can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType
from uuid import uuid4

from inference.messages import Message, well_formed
from inference.model_config import ModelConfig
from inference.sampling_params import SamplingParams
from inference.template_options import OptionValue

RequestId = NewType("RequestId", str)


def new_request_id() -> RequestId:
    return RequestId(uuid4().hex)


class ReadAhead(StrEnum):
    """How much of what will probably be asked is read before it is.

    STORED: what the store has; nothing is computed. WORDS: all up to the end of the last message's text, which is
    being typed. ALL: the whole prompt, as it will be if the message is sent as it stands.
    """

    STORED = "stored"
    WORDS = "words"
    ALL = "all"


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"
    ERROR = "error"


class ContextPolicy(StrEnum):
    """What to do with a chat that is longer than the context.

    REFUSE: nothing is left out that was not before. DROP_OLDEST: whole turns, the oldest first; see context_fit.
    """

    REFUSE = "refuse"
    DROP_OLDEST = "drop_oldest"


@dataclass(frozen=True, slots=True)
class ContextRule:
    """Both are indices into the request's messages. pinned: are never left out. former_cut: where the chat was cut for
    its last reply (ContextFit.cut); it stays there for as long as that will do. 0: nowhere."""

    policy: ContextPolicy = ContextPolicy.REFUSE
    pinned: tuple[int, ...] = ()
    former_cut: int = 0


@dataclass(frozen=True, slots=True)
class ContextFit:
    """How a chat fits into the context; all but the indices are tokens, or bytes where the name says so.

    num_prompt_tokens: of the whole chat. num_sent_tokens: without the messages left out. cut: of the messages before it
    only the system prompt and what is pinned stay. left_out: which do not, ascending.
    is_allowed: the request's policy lets it be sent like this; else cut and left_out tell what dropping would leave out.
    """

    num_prompt_tokens: int
    num_sent_tokens: int
    n_ctx: int
    n_ctx_train: int
    kv_bytes_per_token: int
    cut: int = 0
    left_out: tuple[int, ...] = ()
    is_allowed: bool = True

    @property
    def is_possible(self) -> bool:
        """Whether leaving out what may be left out is enough."""
        return self.num_sent_tokens <= self.n_ctx


class ErrorCode(StrEnum):
    """Why a request or a load was refused or failed. The message beside it says what to do."""

    MODEL_NOT_FOUND = "model_not_found"
    MODEL_INVALID = "model_invalid"
    MODEL_LOAD_FAILED = "model_load_failed"
    MODEL_NOT_LOADED = "model_not_loaded"
    PROMPT_EMPTY = "prompt_empty"
    PROMPT_TOO_LONG = "prompt_too_long"
    TEMPLATE_FAILED = "template_failed"
    STORE_UNUSABLE = "store_unusable"
    SAMPLING_REFUSED = "sampling_refused"
    DECODE_FAILED = "decode_failed"
    ENGINE_DIED = "engine_died"
    INTERNAL = "internal"


class EngineError(Exception):
    """A request or a load that cannot be done; `str()` is one line for the user. fit: where a prompt was too long."""

    def __init__(self, code: ErrorCode, message: str, fit: ContextFit | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.fit = fit


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Exactly one of `messages` (goes through the chat template) and `prompt` (raw text) is given.

    template_options: further variables for the chat template, e.g. {"enable_thinking": False}.
    chat_template: instead of the model's own: the `source` of one of template_choice.choices(), or Jinja text.
    template_time: what a template is told if it asks for the date, Unix time in seconds; None: now. A chat that keeps
    it keeps its prompt, and with that what was read of it.
    owner: whoever the stored state belongs to (opaque), so that it can be forgotten with them; None: nobody.
    is_private: nothing of this request is stored, and nothing is looked up.
    is_aside: asked beside a chat: like a private one, and nothing of it need stay in memory either. It fails where rows
    that are nowhere else would have to make room for it.
    begun: the beginning of the reply, which goes on behind its last token; a Message of role assistant.
    context: what to do if the messages are more than the context holds.
    """

    model: ModelConfig
    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    owner: str | None = None
    is_private: bool = False
    is_aside: bool = False
    template_options: Mapping[str, OptionValue] = field(default_factory=dict)
    chat_template: str | None = None
    template_time: float | None = None
    begun: Message | None = None
    context: ContextRule = ContextRule()
    request_id: RequestId = field(default_factory=new_request_id)

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.prompt is None):
            raise ValueError("give either messages or a prompt")
        if self.begun is not None and self.messages is None:
            raise ValueError("only a reply to messages can be continued")
        if self.is_aside:
            object.__setattr__(self, "is_private", True)
        if self.prompt is not None:
            object.__setattr__(self, "prompt", well_formed(self.prompt))
