"""Whether to restore or to prefill, by rates measured on this disk with this model.

Each rate's logarithm has a normal prior and is observed with normal noise: the posterior's mean is a weighted mean and
its weight a count of observations, discounted so that a disk that became slow is noticed within some dozens of them.

Whoever prefills learns nothing of the disk, and one that was slow for a while (it spun up, it was busy) would never be
asked again. So each time restoring is turned down, what is known of the disk counts for less, and a small share of the
time that prefill is expected to take is saved up; once that covers reading one block, one is read only to measure.
Looking thus takes at most that share of the time spent prefilling, however slow the disk is.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inference.kvcache.block import folder_name
from inference.kvcache.block_file import open_regular, write_file
from inference.kvcache.fingerprint import Fingerprint

_logger = logging.getLogger(__name__)
# An SSD through the page cache, and a small model on a laptop's processor: right for most, outvoted by two observations.
_PRIOR_RESTORE_BYTES_PER_S = 1e9
_PRIOR_PREFILL_TOKENS_PER_S = 300.0
_PRIOR_WEIGHT = 1.0
_MAX_WEIGHT = 50.0
# Variance of one observation's logarithm: rates of one machine scatter by a factor of about 1.6.
_NOISE_VARIANCE = 0.25
# Less than this is measured mostly as the cost of calls, and counts for less than one observation.
_FULL_OBSERVATION_BYTES = 1 << 20
_FULL_OBSERVATION_TOKENS = 64
# Of the time spent prefilling what is stored, what may go into measuring the disk.
PROBE_SHARE = 0.05
# Of a weight, what is left after restoring was turned down once: a tenth after some twenty times.
_KEPT_WEIGHT = 0.9


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """log_rate: posterior mean of ln(units per second). weight: observations behind it, the prior's included."""

    log_rate: float
    weight: float = _PRIOR_WEIGHT

    def observed(self, units: float, seconds: float, full_observation: float) -> RateEstimate:
        """The posterior after one more observation; one without size or duration says nothing."""
        if units <= 0 or seconds <= 0:
            return self
        added = min(1.0, units / full_observation)
        weight = self.weight + added
        log_rate = self.log_rate + (math.log(units / seconds) - self.log_rate) * added / weight
        return RateEstimate(log_rate, min(weight, _MAX_WEIGHT))

    def aged(self) -> RateEstimate:
        """As certain as before, but for what may have changed since."""
        return RateEstimate(self.log_rate, max(_PRIOR_WEIGHT, self.weight * _KEPT_WEIGHT))

    def expected_seconds(self, units: float) -> float:
        """Mean of the posterior of units / rate: the less is known of a rate, the longer it must be feared to take."""
        return units * math.exp(-self.log_rate + _NOISE_VARIANCE / self.weight / 2)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is known of one model. saved_s: for measuring the disk."""

    restore: RateEstimate = RateEstimate(math.log(_PRIOR_RESTORE_BYTES_PER_S))
    prefill: RateEstimate = RateEstimate(math.log(_PRIOR_PREFILL_TOKENS_PER_S))
    saved_s: float = 0.0


class RestoreRates:
    """Kept in one small JSON file for all models, which may be lost or damaged without harm."""

    def __init__(self, path: Path, fingerprint: Fingerprint) -> None:
        self._path = path
        self._model = folder_name(fingerprint)
        kept = _read(path).get(self._model, _Kept())
        self._restore, self._prefill, self._saved_s = kept.restore, kept.prefill, kept.saved_s

    @property
    def restore_bytes_per_s(self) -> float:
        return math.exp(self._restore.log_rate)

    @property
    def prefill_tokens_per_s(self) -> float:
        return math.exp(self._prefill.log_rate)

    def prefers_restore(self, num_bytes: int, num_tokens: int) -> bool:
        """Whether reading num_bytes is expected to take no longer than prefilling the num_tokens that they spare."""
        return self._restore.expected_seconds(num_bytes) <= self._prefill.expected_seconds(num_tokens)

    def observe_restore(self, num_bytes: int, seconds: float) -> None:
        self._restore = self._restore.observed(num_bytes, seconds, _FULL_OBSERVATION_BYTES)

    def observe_prefill(self, num_tokens: int, seconds: float) -> None:
        self._prefill = self._prefill.observed(num_tokens, seconds, _FULL_OBSERVATION_TOKENS)

    def turned_down(self, num_tokens: int) -> None:
        """num_tokens that are stored will be prefilled, since restoring was not preferred."""
        self._restore = self._restore.aged()
        self._saved_s += PROBE_SHARE * self._prefill.expected_seconds(num_tokens)

    def affords_probe(self, num_bytes: int) -> bool:
        """Whether so many bytes may be read only to measure the disk."""
        return self._restore.expected_seconds(num_bytes) <= self._saved_s

    def observe_probe(self, num_bytes: int, seconds: float) -> None:
        """That was done. One that took longer than expected is paid off before the next."""
        self._saved_s -= seconds
        self.observe_restore(num_bytes, seconds)

    def save(self) -> None:
        """Beside what other models' runs have saved meanwhile."""
        kept = {**_read(self._path), self._model: _Kept(self._restore, self._prefill, self._saved_s)}
        table = {
            model: [
                [known.restore.log_rate, known.restore.weight],
                [known.prefill.log_rate, known.prefill.weight],
                known.saved_s,
            ]
            for model, known in kept.items()
        }
        try:
            write_file(self._path, json.dumps(table).encode())
        except OSError as error:
            _logger.warning("rates are not remembered: %s", error)


def _read(path: Path) -> dict[str, _Kept]:
    try:
        with open_regular(path) as file:
            table = json.loads(file.read())
        return {str(model): _kept(*values) for model, values in table.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _logger.info("measured rates are lost: %s", error)
        return {}


def _kept(restore: Sequence[float], prefill: Sequence[float], saved_s: float = 0.0) -> _Kept:
    """Raises ValueError or TypeError for what cannot have been measured."""
    if not abs(saved_s) < math.inf:
        raise ValueError("not a time")
    return _Kept(_estimate(*restore), _estimate(*prefill), float(saved_s))


def _estimate(log_rate: float, weight: float) -> RateEstimate:
    """Raises ValueError for what cannot have been measured."""
    if not (abs(log_rate) < 100 and _PRIOR_WEIGHT <= weight <= _MAX_WEIGHT):
        raise ValueError("not a rate")
    return RateEstimate(float(log_rate), float(weight))
