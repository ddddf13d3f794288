"""Values survive the way into a row and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from desktop.conversations import rows
from inference import Miss, MissReason, SamplingParams

any_text = st.text(st.characters(exclude_categories=()))
datetimes = st.datetimes(
    datetime(1970, 1, 2),
    datetime(9999, 1, 1),
    timezones=st.just(UTC) | st.just(timezone(timedelta(hours=-11))),
)


@given(st.none() | st.lists(st.integers(-(2**31), 2**31 - 1)).map(tuple))
def test_token_ids_survive(token_ids: tuple[int, ...] | None) -> None:
    assert rows.decode_token_ids(rows.encode_token_ids(token_ids)) == token_ids


def test_token_ids_are_little_endian_on_every_machine() -> None:
    assert rows.encode_token_ids((1, 258)) == b"\x01\0\0\0\x02\x01\0\0"


@given(datetimes)
def test_times_survive_to_the_microsecond_as_utc(moment: datetime) -> None:
    read = rows.from_us(rows.to_us(moment))
    assert read == moment
    assert read.tzinfo is UTC


@given(any_text)
def test_cleaned_text_is_unicode_and_loses_only_single_surrogates(text: str) -> None:
    def joined(pair: re.Match[str]) -> str:
        return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    whole = re.sub("[\ud800-\udbff][\udc00-\udfff]", joined, text)
    assert rows.clean_text(text) == re.sub("[\ud800-\udfff]", "\ufffd", whole)


@given(
    st.none()
    | st.builds(
        SamplingParams,
        temperature=st.floats(0, 100),
        top_k=st.integers(0, 1000),
        top_p=st.floats(0.01, 1),
        min_p=st.floats(0, 1),
        repeat_penalty=st.floats(0.1, 3),
        seed=st.none() | st.integers(0, 2**32 - 2),
        max_tokens=st.none() | st.integers(1, 10**6),
        logit_bias=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-100, 100))).map(tuple),
        stop=st.lists(st.text(min_size=1, max_size=20), max_size=3).map(tuple),
        json_schema=st.none() | st.just('{"type": "object"}'),
    )
)
def test_sampling_settings_survive(sampling: SamplingParams | None) -> None:
    assert rows.decode_sampling(rows.encode_sampling(sampling)) == sampling


def test_sampling_settings_with_members_of_another_version_are_read() -> None:
    assert rows.decode_sampling('{"temperature": 0.0, "smoothing": 2}') == SamplingParams(temperature=0.0)


def test_sampling_settings_of_the_first_version_are_read() -> None:
    stored = (
        '{"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.05, "repeat_penalty": 1.0, "seed": null,'
        ' "max_tokens": null}'
    )
    expected = SamplingParams(temperature=0.7, top_k=0, top_p=1.0, min_p=0.05, repeat_penalty=1.0)
    assert rows.decode_sampling(stored) == expected


@given(
    st.none()
    | st.builds(
        Miss,
        st.sampled_from(MissReason),
        st.integers(0, 2**31),
        st.text(),
        st.none() | st.text(),
    )
)
def test_the_reason_of_a_miss_survives(miss: Miss | None) -> None:
    assert rows.decode_miss(rows.encode_miss(miss)) == miss


def test_a_reason_of_another_version_is_left_out() -> None:
    row = rows.encode_miss(Miss(MissReason.EVICTED, 3, "a")) | {"miss_reason": "moon phase"}
    assert rows.decode_miss(row) is None
