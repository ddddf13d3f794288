"""What may help a model that does not fit or ends the engine: settings that ask for less."""

from __future__ import annotations

from dataclasses import replace

from inference.model_config import DEFAULT_MAX_CONTEXT, ModelConfig

SAFE_N_CTX = 2048


def safe_config(config: ModelConfig) -> ModelConfig | None:
    """The same model on the CPU alone, with a small context; None: config asks for no more than that."""
    n_ctx = min(config.n_ctx or DEFAULT_MAX_CONTEXT, SAFE_N_CTX)
    safe = replace(config, n_gpu_layers=0, n_ctx=n_ctx)
    return None if safe == config else safe


def remedies(
    n_ctx: int | None, n_gpu_layers: int | None, *, takes_memory: bool = True, uses_gpu: bool | None = None
) -> str:
    """What to try, as nouns for the end of a sentence, most promising first. The first two are as in ModelConfig.

    takes_memory: too little memory may be the cause. uses_gpu None: not known.
    """
    tries = []
    if n_gpu_layers != 0 and uses_gpu is not False:
        tries.append("fewer GPU layers or none")
    if takes_memory and (n_ctx or DEFAULT_MAX_CONTEXT) > SAFE_N_CTX:
        tries.append(f"a smaller context ({SAFE_N_CTX:,} tokens)")
    if takes_memory:
        tries.append("closing other programs")
    tries.append("a smaller model" if takes_memory else "another model")
    return " or ".join([", ".join(tries[:-1]), tries[-1]] if len(tries) > 1 else tries)
