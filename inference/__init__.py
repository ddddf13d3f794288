"""Everything between messages and tokens. Imports no Qt; the native library is loaded in the worker process only."""

from inference.events import (
    EngineEvent,
    EngineStats,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadProgress,
    Phase,
    PhaseChanged,
    PrefillProgress,
    PrefixExplained,
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
from inference.remedies import safe_config
from inference.request import EngineError, ErrorCode, FinishReason, GenerationRequest, ReadAhead, RequestId
from inference.sampling_params import SamplingParams

__all__ = [
    "EngineClient",
    "EngineError",
    "EngineEvent",
    "EngineStats",
    "ErrorCode",
    "Event",
    "FinishReason",
    "GenerationRequest",
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
    "Phase",
    "PhaseChanged",
    "PrefillProgress",
    "PrefixExplained",
    "PromptCounts",
    "ReadAhead",
    "RequestEvent",
    "RequestFailed",
    "RequestFinished",
    "RequestId",
    "RequestTimings",
    "Role",
    "SamplingParams",
    "StopUnanswered",
    "StoreNotice",
    "TokenDelta",
    "TokenId",
    "WorkerConfig",
    "WorkerExited",
    "safe_config",
]
