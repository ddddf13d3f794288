"""What the engine tells: about one request, or about itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference.messages import TokenId
from inference.metrics import KVUsage, PromptCounts, RequestTimings
from inference.miss import Miss
from inference.model_config import ModelConfig, ModelInfo
from inference.reasoning import Reasoning
from inference.request import ContextFit, ErrorCode, FinishReason, RequestId
from inference.template_info import TemplateUse
from inference.token_logprobs import TokenLogprobs


class Phase(StrEnum):
    """What a request is doing now."""

    QUEUED = "queued"
    LOADING = "loading"
    RESTORING = "restoring"
    PREFILL = "prefill"
    DECODE = "decode"


# --- about one request -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    request_id: RequestId
    phase: Phase


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """num_prefilled_tokens of num_tokens_to_prefill have been handed to decode. elapsed_s: since prefill began."""

    request_id: RequestId
    num_prefilled_tokens: int
    num_tokens_to_prefill: int
    counts: PromptCounts
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """Newly sampled tokens. text holds whole characters only and may be empty while one is incomplete.

    num_generation_tokens: sampled so far, these included. decode_s: seconds since the first token.
    """

    request_id: RequestId
    text: str
    token_ids: tuple[TokenId, ...]
    num_generation_tokens: int
    decode_s: float
    ttft_s: float
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token, where the request asked for them."""
    reasoning: str = ""
    """What was written of the reasoning, which is told from the answer; `text` is the answer's alone."""
    num_reasoning_tokens: int = 0
    """Of all that were sampled so far."""
    reasoning_s: float = 0.0
    """How long that took so far."""


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """The end of a reply that was not refused. text is the answer alone; token_ids are to be kept with it, and are the
    ids of both where there is reasoning.

    text, reasoning and token_ids are the whole reply's, with what it went on from; num_generation_tokens were sampled
    for this request.
    """

    request_id: RequestId
    finish_reason: FinishReason
    text: str
    token_ids: tuple[TokenId, ...]
    counts: PromptCounts
    num_generation_tokens: int
    timings: RequestTimings
    decode_tokens_per_second: float | None
    seed: int
    kv: KVUsage
    bytes_read: int
    """From the store, for this reply."""
    miss: Miss | None
    num_preemptions: int = 0
    """How often the reply gave its KV cells up to others, and went on later."""
    reread_tokens: int = 0
    """Handed to decode once more because of that, or because another chat's stop dropped a batch."""
    message_ids: tuple[tuple[TokenId, ...] | None, ...] = ()
    """What the content of each of the request's messages became, to be given back with it; None: of no use."""
    reasoning: Reasoning | None = None
    fit: ContextFit | None = None
    """Which messages the model was not given. None: raw text, or ended before it was read."""
    template: TemplateUse | None = None
    """What the chat was written with; None for raw text."""

    @classmethod
    def unread(cls, request_id: RequestId, queued_s: float, kv: KVUsage) -> RequestFinished:
        """Of a request that was cancelled before anything was read."""
        return cls(
            request_id=request_id,
            finish_reason=FinishReason.CANCELLED,
            text="",
            token_ids=(),
            counts=PromptCounts(0, 0, 0, 0),
            num_generation_tokens=0,
            timings=RequestTimings(queued_s, 0.0, 0.0, 0.0, 0.0, None, 0.0, queued_s),
            decode_tokens_per_second=None,
            seed=0,
            kv=kv,
            bytes_read=0,
            miss=None,
        )


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Refused, or ended by an error. What was streamed before stays valid."""

    request_id: RequestId
    code: ErrorCode
    message: str
    fit: ContextFit | None = None
    """Where the prompt was too long."""


@dataclass(frozen=True, slots=True)
class PromptCounted:
    """How a chat would fit if it were sent now; where messages are left out, num_sent_tokens is an estimate."""

    request_id: RequestId
    fit: ContextFit


@dataclass(frozen=True, slots=True)
class GrammarChecked:
    """problem: why no reply can follow the grammar or JSON schema, one line; None: nothing was found."""

    request_id: RequestId
    problem: str | None


@dataclass(frozen=True, slots=True)
class PrefixExplained:
    """What a prompt would find: num_usable_tokens of num_stored_tokens could be restored by reading bytes_to_read."""

    request_id: RequestId
    num_prompt_tokens: int
    num_stored_tokens: int
    num_usable_tokens: int
    bytes_to_read: int
    miss: Miss | None


# --- about the engine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelLoadProgress:
    config: ModelConfig
    fraction: float


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ModelLoadFailed:
    config: ModelConfig
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Sent after each step that changed it, at most a few times a second."""

    kv: KVUsage


@dataclass(frozen=True, slots=True)
class StoreNotice:
    """The prefix store could not do something; the chat goes on. One line for the user."""

    message: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Once a second while the inference thread is busy. stuck_s: for how long it has not got on by now. expected_s: what
    the step it is in should take; 0.0: not known. For the client only."""

    stuck_s: float
    expected_s: float


@dataclass(frozen=True, slots=True)
class StopUnanswered:
    """Made by the client: a request that was to stop has not stopped yet. is_loading: since its model is being loaded."""

    request_id: RequestId
    is_loading: bool


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """Made by the client: the worker process ended without being asked to. cause: e.g. "SIGSEGV".

    message: one line for the user. loading: what it was loading then.
    """

    cause: str
    message: str
    loading: ModelConfig | None = None


RequestEvent = (
    PhaseChanged
    | PrefillProgress
    | TokenDelta
    | RequestFinished
    | RequestFailed
    | PromptCounted
    | PrefixExplained
    | GrammarChecked
)
EngineEvent = (
    ModelLoadProgress
    | ModelLoaded
    | ModelLoadFailed
    | EngineStats
    | StoreNotice
    | StopUnanswered
    | WorkerExited
)
Event = RequestEvent | EngineEvent | Heartbeat
