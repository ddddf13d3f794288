"""Values of settings as one types and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from desktop.chat.sampling_layers import LayeredValue
from desktop.chat_settings.sampling_fields import SamplingField
from inference import SamplingParams

_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def value_from(field: SamplingField, typed: str) -> Any:
    """What was typed, as SamplingParams takes it. Raises ValueError with a sentence for below the field."""
    value: Any
    value = texts_from(typed) if field.kind == "texts" else _number(typed)
    try:
        return getattr(SamplingParams(**{field.name: value}), field.name)
    except ValueError as error:
        reason = str(error).removeprefix(f"{field.name} ")
        raise ValueError(f"{reason[0].upper()}{reason[1:]}.") from None


def _number(typed: str) -> int | float:
    # A comma is what half of the world types for a decimal point.
    text = typed.strip().replace(",", ".")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"“{typed.strip()}” is not a number.") from None


def texts_from(typed: str) -> tuple[str, ...]:
    """One a line; \\n, \\t and \\\\ are what they are in code."""
    return tuple(_unescaped(line) for line in typed.split("\n") if line)


def _unescaped(line: str) -> str:
    result, rest = "", line
    while rest:
        before, slash, after = rest.partition("\\")
        result += before
        if not slash:
            break
        result += _ESCAPES.get(after[:1], slash + after[:1])
        rest = after[1:]
    return result


def shown_value(field: SamplingField, value: Any) -> str:
    """As it would be typed; None is called by the field's own word."""
    if value is None:
        return field.nothing
    if field.kind == "texts":
        return shown_texts(value)
    for known, word in field.words:
        if value == known:
            return word
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown_texts(texts: Sequence[str]) -> str:
    return "\n".join(text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for text in texts)


def origin_words(field: SamplingField, inherited: LayeredValue, *, is_set: bool) -> str:
    """Where the value comes from. inherited: what holds where the chat sets nothing."""
    value = shown_value(field, inherited.value).replace("\n", " ")
    words = {"model": f"the model recommends {value}", "settings": "from settings"}
    if not is_set:
        return words.get(inherited.origin, "default")
    if inherited.origin == "model":
        return f"this chat; {words['model']}"
    return f"this chat; else {value or 'none'}, {words.get(inherited.origin, 'default')}"
