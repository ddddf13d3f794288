"""Whose sampling values a chat is answered with: its own, else those of the settings, else the model's, else neutral."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from inference import NEUTRAL, ModelInfo, SamplingParams

Origin = Literal["chat", "settings", "model", "neutral"]

_UNSET = asdict(SamplingParams())
# Of these one can be in force, so whoever sets one of them sets the other to None.
FORMS = ("grammar", "json_schema")


@dataclass(frozen=True, slots=True)
class LayeredValue:
    """value None: no limit, no form, a seed drawn for each reply."""

    value: Any
    origin: Origin


def layered_value(
    name: str, chat: Mapping[str, Any], settings: SamplingParams, model: ModelInfo | None
) -> LayeredValue:
    """name: a field of SamplingParams. model None: it is not loaded, so what it recommends is not known."""
    if name in chat:
        return LayeredValue(chat[name], "chat")
    value = getattr(settings, name)
    if value != _UNSET[name]:
        return LayeredValue(value, "settings")
    defaults = NEUTRAL if model is None else model.sampling_defaults
    if model is not None and name in model.recommended_sampling:
        return LayeredValue(getattr(defaults, name), "model")
    return LayeredValue(getattr(defaults, name, value), "neutral")


def merged_sampling(settings: SamplingParams, chat: Mapping[str, Any]) -> SamplingParams:
    """What a request is given; what nobody sets stays open for the engine."""
    if any(chat.get(name) for name in FORMS):
        chat = {**dict.fromkeys(FORMS), **chat}
    return dataclasses.replace(settings, **chat)
