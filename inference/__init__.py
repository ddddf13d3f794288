"""Everything between messages and tokens. Imports no Qt; the native library is loaded in the worker process only."""

from inference.events import (
    EngineEvent,
    EngineStats,
    Event,
    GrammarChecked,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    Phase,
    PhaseChanged,
    PrefillProgress,
    PrefixExplained,
    PromptCounted,
    RequestEvent,
    RequestFailed,
    RequestFinished,
    StopUnanswered,
    StoreNotice,
    TokenDelta,
    WorkerExited,
)
from inference.load_marks import LoadMarks
from inference.messages import Message, Role, TokenId
from inference.metrics import KVUsage, PromptCounts, RequestTimings
from inference.miss import Miss, MissReason
from inference.model_config import ModelConfig, ModelInfo
from inference.process.client import EngineClient
from inference.process.worker_config import WorkerConfig
from inference.process.worker_death import NOBODYS_FAULT
from inference.reasoning import Reasoning
from inference.remedies import safe_config
from inference.request import (
    ContextFit,
    ContextPolicy,
    ContextRule,
    EngineError,
    ErrorCode,
    FinishReason,
    GenerationRequest,
    ReadAhead,
    RequestId,
)
from inference.sampling_defaults import NEUTRAL, SamplingDefaults
from inference.sampling_params import SamplingParams
from inference.template_info import TemplateInfo, TemplateUse
from inference.template_options import OptionValue, TemplateOption

__all__ = [
    "NEUTRAL",
    "NOBODYS_FAULT",
    "ContextFit",
    "ContextPolicy",
    "ContextRule",
    "EngineClient",
    "EngineError",
    "EngineEvent",
    "EngineStats",
    "ErrorCode",
    "Event",
    "FinishReason",
    "GenerationRequest",
    "GrammarChecked",
    "KVUsage",
    "LoadMarks",
    "Message",
    "Miss",
    "MissReason",
    "ModelConfig",
    "ModelInfo",
    "ModelLoadFailed",
    "ModelLoadProgress",
    "ModelLoaded",
    "OptionValue",
    "Phase",
    "PhaseChanged",
    "PrefillProgress",
    "PrefixExplained",
    "PromptCounted",
    "PromptCounts",
    "ReadAhead",
    "Reasoning",
    "RequestEvent",
    "RequestFailed",
    "RequestFinished",
    "RequestId",
    "RequestTimings",
    "Role",
    "SamplingDefaults",
    "SamplingParams",
    "StopUnanswered",
    "StoreNotice",
    "TemplateInfo",
    "TemplateOption",
    "TemplateUse",
    "TokenDelta",
    "TokenId",
    "WorkerConfig",
    "WorkerExited",
    "safe_config",
]
