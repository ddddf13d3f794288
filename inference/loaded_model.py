"""A model made ready to generate: weights, context, prompt builder, and what its stored state may be used for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import psutil
from gguf.constants import GGMLQuantizationType

from inference.context_fit import ContextSize
from inference.cpu_threads import default_threads
from inference.kvcache.fingerprint import Fingerprint, FingerprintFields, fingerprint
from inference.kvcache.model_digest import ModelDigests
from inference.kvcache.reuse import ReuseRule
from inference.llama.context import Context, ContextParams
from inference.llama.devices import list_devices
from inference.llama.gguf_header import kv_bytes_per_token
from inference.llama.model import Model, load_model
from inference.llama.native_library import library_build
from inference.model_config import DEFAULT_MAX_CONTEXT, MAX_THREADS, ModelConfig, ModelInfo
from inference.prompt import PromptBuilder
from inference.recommended_sampling import recommended_sampling
from inference.request import EngineError, ErrorCode

_logger = logging.getLogger(__name__)
# Chats that can run at once.
MAX_SEQUENCES = 8


class LoadedModel:
    """Owns model and context; used by the inference thread only."""

    def __init__(
        self,
        config: ModelConfig,
        model_digests: ModelDigests | None,
        on_progress: Callable[[float], bool],
        context_params: ContextParams | None = None,
    ):
        """model_digests None: there is no store, so no fingerprint is needed. context_params: instead of those that
        follow from config. Raises EngineError."""
        started = time.monotonic()
        path = Path(config.path)
        self.model = load_model(path, config.n_gpu_layers, on_progress)
        try:
            self.context = Context(self.model, context_params or _context_params(self.model, config))
        except BaseException:
            self.model.close()
            raise
        self.prompt_builder = PromptBuilder(self.model.vocab, self.model.header.chat_templates)
        self._recommendation = recommended_sampling(self.model.header.metadata)
        self.sampling_defaults = self._recommendation.values
        self.reuse_rule = ReuseRule(n_swa=self.model.n_swa, recurrent=self.model.is_recurrent)
        self._fields = _start_fields(self.model, self.context, model_digests)
        self.info = self._read_info(config, time.monotonic() - started)

    @property
    def context_size(self) -> ContextSize:
        n_ctx = self.context.n_ctx
        return ContextSize(n_ctx, self.model.n_ctx_train, self.context.kv_allocated_bytes // n_ctx)

    def fingerprint_fields(self) -> FingerprintFields | None:
        """None: no store, or the model file cannot be hashed. The first call may wait for the hash."""
        if self._fields is None:
            return None
        try:
            return self._fields.result()
        except OSError as error:
            _logger.warning("the model file could not be hashed, so nothing is stored: %s", error)
            self._fields = None
            return None

    def fingerprint(self) -> Fingerprint | None:
        """Of fingerprint_fields(), which may be None."""
        fields = self.fingerprint_fields()
        return None if fields is None else fingerprint(fields)

    def _read_info(self, config: ModelConfig, load_s: float) -> ModelInfo:
        model, offload = self.model, self.model.offload
        return ModelInfo(
            config=config,
            name=model.header.name,
            architecture=model.header.architecture,
            quantisation=model.header.quantisation,
            size_bytes=model.size_bytes,
            num_params=model.num_params,
            n_ctx=self.context.n_ctx,
            n_ctx_train=model.n_ctx_train,
            n_layers=offload.layers,
            layers_offloaded=offload.layers_offloaded,
            device_name=offload.device_name,
            backend=offload.backend,
            n_threads=self.context.params.n_threads,
            kv_allocated_bytes=self.context.kv_allocated_bytes,
            reuse="message ends only" if model.is_recurrent or model.n_swa else "any prefix",
            template=self.prompt_builder.template_info(),
            sampling_defaults=self.sampling_defaults,
            recommended_sampling=self._recommendation.names,
            load_s=load_s,
        )

    def close(self) -> None:
        self.context.close()
        self.model.close()


def _context_params(model: Model, config: ModelConfig) -> ContextParams:
    n_ctx = min(model.n_ctx_train, DEFAULT_MAX_CONTEXT) if config.n_ctx is None else config.n_ctx
    _check_size(model, n_ctx)
    n_threads = default_threads() if config.n_threads is None else min(config.n_threads, MAX_THREADS)
    return ContextParams(n_ctx=n_ctx, n_threads=n_threads, n_seq=MAX_SEQUENCES)


def _check_size(model: Model, n_ctx: int) -> None:
    """Refuse what the library would try for a minute, or count with fewer bits. Raises EngineError."""
    if not 1 <= n_ctx < 2**31:
        raise EngineError(
            ErrorCode.MODEL_LOAD_FAILED, f"a context of {n_ctx:,} tokens cannot be: choose another"
        )
    kv_type = GGMLQuantizationType(ContextParams(n_ctx).type_k)
    needed = n_ctx * kv_bytes_per_token(model.header, kv_type, kv_type)
    memory = psutil.virtual_memory().total + sum(
        device.total_bytes for device in list_devices() if device.is_gpu
    )
    if needed > memory:
        raise EngineError(
            ErrorCode.MODEL_LOAD_FAILED,
            f"a context of {n_ctx:,} tokens needs up to {needed / 1e9:,.0f} GB of memory, and there are "
            f"{memory / 1e9:,.0f} GB: choose a smaller one",
        )


def _start_fields(
    model: Model, context: Context, model_digests: ModelDigests | None
) -> Future[FingerprintFields] | None:
    """Hash the model's files beside everything else: the first request may well come later than the hash."""
    if model_digests is None:
        return None
    params = context.params

    def compute() -> FingerprintFields:
        return FingerprintFields(
            model_sha256=model_digests.sha256(model.header.parts),
            library_build=library_build(),
            type_k=params.type_k,
            type_v=params.type_v,
            flash_attention=context.flash_attention,
            n_swa=model.n_swa,
            swa_full=params.swa_full,
            rope_factors=_rope_factors(model, params.n_ctx),
        )

    executor = ThreadPoolExecutor(1, thread_name_prefix="model digest")
    future = executor.submit(compute)
    executor.shutdown(wait=False)
    return future


def _rope_factors(model: Model, n_ctx: int) -> Literal["none", "short", "long"]:
    """Models with two sets of RoPE factors choose by context length, so n_ctx counts for these, and there only."""
    original = model.header.metadata.get(f"{model.header.architecture}.rope.scaling.original_context_length")
    if not isinstance(original, int):
        return "none"
    return "long" if n_ctx > original else "short"
