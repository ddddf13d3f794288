"""What a request may ask of the sampler, and what is said of the rest."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.sampling_params import _FRACTION_RANGES, _WHOLE_RANGES, SamplingParams

RANGES = {**_WHOLE_RANGES, **_FRACTION_RANGES}


def any_sampling() -> st.SearchStrategy[SamplingParams]:
    """Every field at any value it may have."""
    values: dict[str, st.SearchStrategy[Any]] = {
        **{name: st.integers(low, high) for name, (low, high, _) in _WHOLE_RANGES.items()},
        **{name: st.floats(low, high) for name, (low, high, _) in _FRACTION_RANGES.items()},
        "stop": st.lists(st.text(min_size=1, max_size=8), max_size=3).map(tuple),
        "logit_bias": st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-100, 100)), max_size=3).map(
            tuple
        ),
        "grammar": st.sampled_from(['root ::= "a"', 'root ::= "ä" # \n']),
        "ignore_eos": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=values).map(lambda given: SamplingParams(**given))


def test_every_number_has_a_range() -> None:
    others = {"dry_sequence_breakers", "logit_bias", "grammar", "json_schema", "stop", "ignore_eos"}
    assert {field.name for field in fields(SamplingParams)} == RANGES.keys() | others


@pytest.mark.parametrize("name", RANGES)
def test_a_number_out_of_range_is_refused_in_one_line_that_names_it(name: str) -> None:
    low, high, range_text = RANGES[name]
    for value in (low, high):
        assert getattr(SamplingParams(**{name: value}), name) == value
    step = 1 if name in _WHOLE_RANGES else 1e-6
    for value in (low - step, high + step):
        with pytest.raises(ValueError, match=f"^{name} must be ") as raised:
            SamplingParams(**{name: value})
        assert range_text in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [math.nan, math.inf, "1", True, [1]])
def test_what_is_no_number_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", "END"),
        ("stop", ("",)),
        ("stop", ("x" * 257,)),
        ("stop", ("x",) * 17),
        ("stop", (1,)),
        ("dry_sequence_breakers", ("",)),
        ("logit_bias", {1: 2.0}),
        ("logit_bias", ((1, 2.0, 3.0),)),
        ("logit_bias", ((-1, 2.0),)),
        ("logit_bias", ((1.0, 2.0),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, -101.0),)),
        ("grammar", " "),
        ("grammar", 'root ::= "a\0"'),
        ("grammar", "x" * 100_001),
        ("json_schema", {}),
        ("ignore_eos", 1),
    ],
)
def test_anything_else_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be ") as raised:
        SamplingParams(**{name: value})
    assert len(str(raised.value)) < 200


def test_a_grammar_and_a_schema_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"^json_schema must be left out"):
        SamplingParams(grammar='root ::= "a"', json_schema="{}")


@given(any_sampling())
def test_settings_survive_json_and_the_wire(sampling: SamplingParams) -> None:
    assert SamplingParams(**json.loads(json.dumps(asdict(sampling)))) == sampling
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sampling), type=SamplingParams) == sampling


def test_a_field_of_another_type_does_not_come_over_the_wire() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"stop": [1]}), type=SamplingParams)


def test_a_broken_character_does_not_stop_the_wire() -> None:
    assert SamplingParams(stop=("\ud800!",)).stop == ("?!",)
