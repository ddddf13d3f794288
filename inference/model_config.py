"""Which model is to be loaded and how; and what the load really gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inference.sampling_defaults import SamplingDefaults
from inference.template_info import TemplateInfo

# What a stored prefix of this model can be used for (shown to the user).
ReuseKind = Literal["any prefix", "message ends only"]


DEFAULT_MAX_CONTEXT = 8192
# GGML_MAX_N_THREADS: with more, the library ends the process.
MAX_THREADS = 512


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What to load. Two equal configs never load twice.

    n_ctx: tokens; None: min(training context, DEFAULT_MAX_CONTEXT).
    n_gpu_layers: None: as many as fit (auto); 0: none.
    n_threads: None: the physical cores this process may use.
    """

    path: str
    n_ctx: int | None = None
    n_gpu_layers: int | None = None
    n_threads: int | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, read back from the library after the load."""

    config: ModelConfig
    name: str
    architecture: str
    quantisation: str
    size_bytes: int
    num_params: int
    n_ctx: int
    n_ctx_train: int
    n_layers: int
    """Layers that could be offloaded (the output layer counts as one)."""
    layers_offloaded: int
    device_name: str
    backend: str
    n_threads: int
    kv_allocated_bytes: int
    reuse: ReuseKind
    template: TemplateInfo
    sampling_defaults: SamplingDefaults
    """What a request leaves open is this."""
    recommended_sampling: tuple[str, ...]
    """The fields of sampling_defaults that the model's file names; the others are neutral."""
    load_s: float

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be written without anybody choosing a template."""
        return self.template.source is not None
