"""What is used where a request leaves the choice open: the model's own recommendation, else neutral values."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from inference.sampling_params import SamplingParams


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
        open_names = [name for name in _NAMES if getattr(params, name) is None]
        return replace(params, **{name: getattr(self, name) for name in open_names})


_NAMES = tuple(field.name for field in fields(SamplingDefaults))
NEUTRAL = SamplingDefaults()
