"""What is typed becomes a value or is refused with a sentence, and a value is shown as it would be typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop.chat.sampling_layers import LayeredValue
from desktop.chat_settings.sampling_fields import MORE, NUMBERS_FIRST, SamplingField
from desktop.chat_settings.value_text import origin_words, shown_texts, shown_value, texts_from, value_from
from inference import SamplingParams

FIELDS = {field.name: field for field in (*NUMBERS_FIRST, *(field for _, fields in MORE for field in fields))}
NUMBERS = [field for field in FIELDS.values() if field.kind == "number"]


@pytest.mark.parametrize(("typed", "value"), [("0.7", 0.7), ("0,7", 0.7), (" 1 ", 1.0), ("1e-1", 0.1)])
def test_numbers_are_read_as_people_write_them(typed: str, value: float) -> None:
    assert value_from(FIELDS["temperature"], typed) == value


@pytest.mark.parametrize(
    ("name", "typed", "reason"),
    [
        ("temperature", "warm", "“warm” is not a number."),
        ("temperature", "300", "Must be between 0 and 100, not 300."),
        ("temperature", "nan", "Must be between 0 and 100, not nan."),
        ("top_k", "2.5", "Must be a whole number, 0 (off) or more, not 2.5."),
        ("top_p", "0", "Must be above 0 and at most 1, not 0."),
        ("stop", "x" * 257, "Must be at most 16 texts of 1 to 256 characters, not"),
    ],
)
def test_a_bad_value_is_refused_with_its_range(name: str, typed: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        value_from(FIELDS[name], typed)
    assert str(refused.value).startswith(reason)


@given(st.sampled_from(NUMBERS), st.text())
def test_whatever_is_typed_is_a_value_or_refused_with_one_sentence(field: SamplingField, typed: str) -> None:
    reason = ""
    try:
        value = value_from(field, typed)
    except ValueError as error:
        reason = str(error)
    if reason:
        assert reason.endswith(".")
    else:
        assert getattr(SamplingParams(**{field.name: value}), field.name) == value
        assert value_from(field, shown_value(field, value)) == pytest.approx(value, rel=1e-5)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5))
def test_texts_come_back_as_they_were(texts: list[str]) -> None:
    assert texts_from(shown_texts(texts)) == tuple(texts)


def test_every_value_says_where_it_comes_from() -> None:
    temperature = FIELDS["temperature"]
    assert origin_words(temperature, LayeredValue(0.7, "neutral"), is_set=False) == "default"
    assert origin_words(temperature, LayeredValue(0.7, "settings"), is_set=False) == "from settings"
    recommended = LayeredValue(0.6, "model")
    assert origin_words(temperature, recommended, is_set=False) == "the model recommends 0.6"
    assert origin_words(temperature, recommended, is_set=True) == "this chat; the model recommends 0.6"
    assert origin_words(FIELDS["seed"], LayeredValue(None, "neutral"), is_set=True) == (
        "this chat; else random, default"
    )
