from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.quantities import (
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
    format_share_of_bytes,
)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (93_000_000, "93 MB"),
        (1_300_000_000, "1.3 GB"),
        (20_000_000_000, "20 GB"),
        (5_000 * 10**12, "5000 TB"),
    ],
)
def test_bytes_are_told_in_decimal_units(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_a_share_names_the_unit_once_where_both_have_it() -> None:
    assert format_share_of_bytes(12_000_000, 184_000_000) == "12 of 184 MB"
    assert format_share_of_bytes(0, 184_000_000) == "0 of 184 MB"


def test_a_share_names_both_units_where_they_differ() -> None:
    assert format_share_of_bytes(93_000_000, 20_000_000_000) == "93 MB of 20 GB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0042, "4.2 ms"), (0.03, "0.03 s"), (1.23, "1.2 s"), (9.96, "10 s"), (84.4, "84 s"), (150, "2.5 min")],
)
def test_seconds_keep_two_digits_that_matter(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_rate_drops_its_decimals_from_a_hundred_on() -> None:
    assert format_rate(41.23) == "41.2 tok/s"
    assert format_rate(99.97) == "100 tok/s"


@given(st.floats(0, 1, exclude_max=True))
def test_only_all_of_it_is_a_hundred_percent(fraction: float) -> None:
    assert format_percent(fraction) != "100 %"
