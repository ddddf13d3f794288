"""What is used where a request leaves the choice open: the model's own recommendation, else neutral values."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from gguf.constants import Keys

from inference.sampling_params import SamplingParams

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """A value for every field of SamplingParams that may be None; meaning and ranges are the same there.

    Without a recommendation nothing pushes the choice in any direction (case: a repeat penalty of 1.1 as a default
    distorts code and JSON); a mild temperature and min_p only keep out the tail that no one would call a choice.
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    penalty_last_n: int = 64
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1

    def under(self, params: SamplingParams) -> SamplingDefaults:
        """The values in force: those that params give, the rest from here."""
        given = {name: getattr(params, name) for name in _NAMES}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def completed(self, params: SamplingParams) -> SamplingParams:
        """params with nothing left open, to be used and recorded with the reply."""
        return replace(params, **asdict(self.under(params)))


_NAMES = tuple(field.name for field in fields(SamplingDefaults))
NEUTRAL = SamplingDefaults()
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


def recommended_sampling(metadata: Mapping[str, object]) -> SamplingDefaults:
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
    return replace(_ALL_OFF, **recommended) if recommended else NEUTRAL  # type: ignore[arg-type]
