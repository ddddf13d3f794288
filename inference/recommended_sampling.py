"""What a model's file recommends for sampling."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gguf.constants import Keys

from inference.sampling_defaults import NEUTRAL, SamplingDefaults
from inference.sampling_params import SamplingParams

_logger = logging.getLogger(__name__)
# A recommendation is taken whole: what it does not name is off, as where its author tried it.
_ALL_OFF = SamplingDefaults(temperature=1.0, min_p=0.0)
_KEYS = {
    "temperature": Keys.General.SAMPLING_TEMP,
    "top_k": Keys.General.SAMPLING_TOP_K,
    "top_p": Keys.General.SAMPLING_TOP_P,
    "min_p": Keys.General.SAMPLING_MIN_P,
    "repeat_penalty": Keys.General.SAMPLING_PENALTY_REPEAT,
    "penalty_last_n": Keys.General.SAMPLING_PENALTY_LAST_N,
    "xtc_probability": Keys.General.SAMPLING_XTC_PROBABILITY,
    "xtc_threshold": Keys.General.SAMPLING_XTC_THRESHOLD,
    "mirostat": Keys.General.SAMPLING_MIROSTAT,
    "mirostat_tau": Keys.General.SAMPLING_MIROSTAT_TAU,
    "mirostat_eta": Keys.General.SAMPLING_MIROSTAT_ETA,
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """values: what is used where a request leaves the choice open. names: those of them that the file names."""

    values: SamplingDefaults
    names: tuple[str, ...] = ()


def recommended_sampling(metadata: Mapping[str, object]) -> Recommendation:
    """What a GGUF file's metadata recommend (general.sampling.*), else NEUTRAL. Values out of range are left out.

    The order of the samplers (general.sampling.sequence) is not followed: it is llama.cpp's default order here.
    """
    recommended: dict[str, float | int] = {}
    for name, key in _KEYS.items():
        value = metadata.get(key)
        if value is None:
            continue
        try:
            recommended[name] = getattr(SamplingParams(**{name: value}), name)  # type: ignore[arg-type]
        except ValueError as error:
            _logger.warning("the model's recommendation %s is left out: %s", key, error)
    if not recommended:
        return Recommendation(NEUTRAL)
    return Recommendation(replace(_ALL_OFF, **recommended), tuple(recommended))  # type: ignore[arg-type]
