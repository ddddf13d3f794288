import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.restore_rates import PROBE_SHARE, RestoreRates

FINGERPRINT, OTHER = Fingerprint(bytes(32)), Fingerprint(b"\x01" * 32)
BYTES_PER_TOKEN, BLOCK_TOKENS = 22_528, 256
BLOCK_BYTES = BYTES_PER_TOKEN * BLOCK_TOKENS
NOWHERE = Path("does not exist")

bytes_per_s = st.floats(1e5, 1e11)
tokens_per_s = st.floats(0.5, 1e6)


def measured(bytes_per_s: float, tokens_per_s: float, times: int, path: Path = NOWHERE) -> RestoreRates:
    rates = RestoreRates(path, FINGERPRINT)
    for _ in range(times):
        rates.observe_restore(BLOCK_BYTES, BLOCK_BYTES / bytes_per_s)
        rates.observe_prefill(BLOCK_TOKENS, BLOCK_TOKENS / tokens_per_s)
    return rates


@given(bytes_per_s, tokens_per_s)
def test_estimates_converge_to_what_is_observed(disk: float, processor: float) -> None:
    rates = measured(disk, processor, 500)
    assert math.isclose(rates.restore_bytes_per_s, disk, rel_tol=0.05)
    assert math.isclose(rates.prefill_tokens_per_s, processor, rel_tol=0.05)


@given(bytes_per_s, tokens_per_s)
def test_of_two_ways_far_apart_the_slower_is_not_chosen_after_eight_observations(
    disk: float, processor: float
) -> None:
    restore_s, prefill_s = BLOCK_BYTES / disk, BLOCK_TOKENS / processor
    rates = measured(disk, processor, 8)
    if restore_s * 16 < prefill_s:
        assert rates.prefers_restore(BLOCK_BYTES, BLOCK_TOKENS)
    if prefill_s * 16 < restore_s:
        assert not rates.prefers_restore(BLOCK_BYTES, BLOCK_TOKENS)


@given(bytes_per_s, tokens_per_s, st.integers(0, 20), st.floats(0.001, 1000))
def test_the_choice_depends_on_the_proportion_alone(
    disk: float, processor: float, times: int, scale: float
) -> None:
    rates = measured(disk, processor, times)
    tokens = max(1, round(256 * scale))
    assert rates.prefers_restore(tokens * BYTES_PER_TOKEN, tokens) == rates.prefers_restore(
        BYTES_PER_TOKEN, 1
    )


@given(st.integers(0, 10**10), st.integers(1, 10**5), st.integers(1, 10**10))
def test_more_bytes_for_the_same_tokens_never_make_restoring_better(
    small: int, tokens: int, more: int
) -> None:
    rates = measured(1e8, 100, 3)
    if not rates.prefers_restore(small, tokens):
        assert not rates.prefers_restore(small + more, tokens)


def test_without_any_observation_a_usual_block_is_restored() -> None:
    assert measured(1, 1, 0).prefers_restore(BLOCK_BYTES, BLOCK_TOKENS)


def test_a_disk_that_became_slow_is_noticed() -> None:
    rates = measured(1e9, 300, 1000)
    for _ in range(100):
        rates.observe_restore(BLOCK_BYTES, BLOCK_BYTES / 1e6)
    assert not rates.prefers_restore(BLOCK_BYTES, BLOCK_TOKENS)


def test_one_outlier_after_many_observations_changes_nothing() -> None:
    rates = measured(1e9, 300, 30)
    rates.observe_restore(BLOCK_BYTES, 10.0)
    assert rates.prefers_restore(BLOCK_BYTES, BLOCK_TOKENS)


def test_a_tiny_observation_counts_for_little() -> None:
    large, tiny = measured(1, 1, 0), measured(1, 1, 0)
    large.observe_restore(1 << 20, 1.0)
    tiny.observe_restore(1 << 10, 1.0 / 1024)
    assert large.restore_bytes_per_s < 1e8 < 9e8 < tiny.restore_bytes_per_s


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (100, 0.0), (100, -1.0)])
def test_observations_that_say_nothing_are_ignored(size: int, seconds: float) -> None:
    rates = measured(1, 1, 0)
    before = (rates.restore_bytes_per_s, rates.prefill_tokens_per_s)
    rates.observe_restore(size, seconds)
    rates.observe_prefill(size, seconds)
    assert (rates.restore_bytes_per_s, rates.prefill_tokens_per_s) == before


def test_each_models_rates_are_kept_apart_and_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    measured(1e7, 50, 20, path).save()
    RestoreRates(path, OTHER).save()
    again, other = RestoreRates(path, FINGERPRINT), RestoreRates(path, OTHER)
    assert again.restore_bytes_per_s == measured(1e7, 50, 20).restore_bytes_per_s
    assert other.restore_bytes_per_s == pytest.approx(1e9)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"a": 1}',
        '{"a": [[1e999, 1], [1, 1]]}',
        '{"a": [["x", 1], [1, 1]]}',
        '{"a": [[1, 1], [1, 1], "x"]}',
        '{"a": [[1, 1], [1, 1], NaN]}',
        "\xff",
    ],
)
def test_a_damaged_file_means_no_observations(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rates.json"
    path.write_bytes(content.replace('"a"', f'"{"00" * 16}"').encode("latin-1"))
    assert RestoreRates(path, FINGERPRINT).prefill_tokens_per_s == pytest.approx(300)


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path) -> None:
    RestoreRates(tmp_path / "missing" / "rates.json", FINGERPRINT).save()
    assert list(tmp_path.iterdir()) == []


# --- a disk that is not asked any more ------------------------------------------------------------


@dataclass
class Turns:
    """Turns of a chat of num_tokens on a simulated machine: what each took, by what was really done."""

    rates: RestoreRates
    tokens_per_s: float
    num_tokens: int = 4096
    prefill_s: float = 0.0
    probe_s: float = 0.0
    num_restored: int = 0

    def take(self, bytes_per_s: float, scatter: float = 1.0) -> None:
        num_bytes = self.num_tokens * BYTES_PER_TOKEN
        if not self.rates.prefers_restore(num_bytes, self.num_tokens):
            self.rates.turned_down(self.num_tokens)
            if self.rates.affords_probe(BLOCK_BYTES):
                seconds = BLOCK_BYTES / bytes_per_s * scatter
                self.rates.observe_probe(BLOCK_BYTES, seconds)
                self.probe_s += seconds
        if self.rates.prefers_restore(num_bytes, self.num_tokens):
            self.rates.observe_restore(num_bytes, num_bytes / bytes_per_s * scatter)
            self.num_restored += 1
        else:
            seconds = self.num_tokens / self.tokens_per_s
            self.rates.observe_prefill(self.num_tokens, seconds)
            self.prefill_s += seconds


slower = st.floats(4, 300)
seeds = st.integers(0, 2**32)


@given(tokens_per_s, slower, st.integers(1, 500), st.integers(1000, 8000))
def test_a_disk_that_was_slow_for_a_while_is_used_again(
    processor: float, times_slower: float, num_slow: int, num_tokens: int
) -> None:
    as_quick = processor * BYTES_PER_TOKEN
    turns = Turns(measured(as_quick * 100, processor, 20), processor, num_tokens)
    for _ in range(num_slow):
        turns.take(as_quick / times_slower)
    # Saving up for one look takes the longer the slower the disk was; what is slow is seldom looked at.
    for _ in range(60 + math.ceil(2 * times_slower * BLOCK_TOKENS / (PROBE_SHARE * num_tokens))):
        turns.take(as_quick * 20)
    before = turns.num_restored
    for _ in range(20):
        turns.take(as_quick * 20)
    assert turns.num_restored == before + 20
    assert turns.rates.restore_bytes_per_s > as_quick * 4


@given(tokens_per_s, slower, st.integers(500, 8000), seeds)
def test_a_slower_disk_takes_but_a_small_share_of_the_time(
    processor: float, times_slower: float, num_tokens: int, seed: int
) -> None:
    scatter, disk = Random(seed), processor * BYTES_PER_TOKEN / times_slower
    turns = Turns(measured(disk, processor, 8), processor, num_tokens)
    for _ in range(600):
        turns.take(disk, scatter.uniform(0.7, 1.4))
    assert turns.num_restored == 0
    # What one look took longer than expected is paid off before the next.
    longest_s = 1.4 * BLOCK_BYTES / disk
    assert turns.probe_s <= PROBE_SHARE * turns.prefill_s * 1.2 + longest_s
    if PROBE_SHARE * turns.prefill_s > 3 * longest_s:
        assert turns.probe_s > 0


@given(bytes_per_s, tokens_per_s, st.integers(0, 200))
def test_turning_restoring_down_changes_no_rate_but_how_certain_it_is(
    disk: float, processor: float, times: int
) -> None:
    rates = measured(disk, processor, 30)
    before = (rates.restore_bytes_per_s, rates.prefill_tokens_per_s)
    for _ in range(times):
        rates.turned_down(1000)
    assert (rates.restore_bytes_per_s, rates.prefill_tokens_per_s) == before
    rates.observe_restore(BLOCK_BYTES, 100 * BLOCK_BYTES / before[0])
    moved = math.log(before[0] / rates.restore_bytes_per_s) / math.log(100)
    assert moved == pytest.approx(1 / (1 + max(1.0, 31 * 0.9**times)))


def test_what_is_saved_up_for_a_look_is_kept_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    rates = measured(1e6, 300, 20, path)
    for _ in range(20):
        rates.turned_down(4096)
    rates.save()
    assert RestoreRates(path, FINGERPRINT).affords_probe(BLOCK_BYTES)
    rates.observe_probe(BLOCK_BYTES, 60.0)
    rates.save()
    assert not RestoreRates(path, FINGERPRINT).affords_probe(BLOCK_BYTES)
