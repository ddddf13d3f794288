"""Whose value holds, and that a request gets exactly what is shown."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from desktop.chat.sampling_layers import LayeredValue, layered_value, merged_sampling
from inference import NEUTRAL, ModelConfig, SamplingDefaults, SamplingParams
from tests.desktop.scripted_engine import model_info

MODEL = model_info(
    ModelConfig("m.gguf"),
    sampling_defaults=SamplingDefaults(temperature=0.6, min_p=0.0),
    recommended_sampling=("temperature",),
)
SETTINGS = SamplingParams(top_k=5, presence_penalty=0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("temperature", LayeredValue(0.6, "model")),
        ("min_p", LayeredValue(0.0, "neutral")),
        ("top_k", LayeredValue(5, "settings")),
        ("presence_penalty", LayeredValue(0.5, "settings")),
        ("frequency_penalty", LayeredValue(0.0, "neutral")),
        ("seed", LayeredValue(None, "neutral")),
        ("dry_base", LayeredValue(2.0, "chat")),
    ],
)
def test_the_chat_goes_before_the_settings_and_those_before_the_model(
    name: str, expected: LayeredValue
) -> None:
    assert layered_value(name, {"dry_base": 2.0}, SETTINGS, MODEL) == expected


def test_without_the_model_neutral_values_are_shown() -> None:
    assert layered_value("temperature", {}, SamplingParams(), None) == LayeredValue(
        NEUTRAL.temperature, "neutral"
    )


def test_what_is_shown_is_what_the_engine_uses() -> None:
    chat = {"temperature": 0.0, "top_p": 0.9}
    used = asdict(MODEL.sampling_defaults.completed(merged_sampling(SETTINGS, chat)))
    shown = {
        field.name: layered_value(field.name, chat, SETTINGS, MODEL).value for field in fields(SamplingParams)
    }
    assert shown == used


def test_a_form_of_the_chat_takes_the_place_of_another_from_the_settings() -> None:
    settings = SamplingParams(grammar='root ::= "a"')
    assert merged_sampling(settings, {"json_schema": "{}"}) == SamplingParams(json_schema="{}")
    assert merged_sampling(settings, {"grammar": None, "json_schema": None}) == SamplingParams()
    assert merged_sampling(settings, {"top_k": 1}).grammar == settings.grammar
