"""Which sampling values the panel offers, in which order and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FieldKind = Literal["number", "choice", "texts"]


@dataclass(frozen=True, slots=True)
class SamplingField:
    """name: of SamplingParams. nothing: what None is called, for fields that may be None. words: of a choice."""

    name: str
    label: str
    hint: str
    kind: FieldKind = "number"
    nothing: str = ""
    words: tuple[tuple[Any, str], ...] = ()


NUMBERS_FIRST = (
    SamplingField("temperature", "Temperature", "How freely it chooses; 0 always takes the likeliest token."),
    SamplingField("top_k", "Top-k", "Only the k likeliest tokens are left to choose from; 0: all."),
    SamplingField("top_p", "Top-p", "Only the likeliest tokens that make up this share together; 1: all."),
    SamplingField("min_p", "Min-p", "Only tokens at least this times as likely as the likeliest; 0: all."),
    SamplingField(
        "repeat_penalty", "Repeat penalty", "Above 1, tokens that were there lately become rarer; 1: off."
    ),
    SamplingField("max_tokens", "Reply limit", "In tokens; the reply is cut there.", nothing="no limit"),
    SamplingField("seed", "Seed", "The same seed draws the same tokens again.", nothing="random"),
)
REPETITION = (
    SamplingField("presence_penalty", "Presence penalty", "For tokens that were there at all; 0: off."),
    SamplingField("frequency_penalty", "Frequency penalty", "For each time a token was there; 0: off."),
    SamplingField("penalty_last_n", "Penalty window", "How many of the last tokens the penalties look at."),
    SamplingField("dry_multiplier", "DRY", "Against whole phrases that repeat; 0: off, 0.8 is usual."),
    SamplingField("dry_base", "DRY base", "How steeply it grows with the length of the repetition."),
    SamplingField("dry_allowed_length", "DRY free length", "Repetitions up to so many tokens cost nothing."),
    SamplingField("dry_last_n", "DRY window", "How many of the last tokens it looks at."),
    SamplingField(
        "dry_sequence_breakers", "DRY breakers", "Repetitions are not followed across these.", "texts"
    ),
)
UNLIKELY_TOKENS = (
    SamplingField("typical_p", "Typical", "Keeps tokens about as surprising as expected; 1: off."),
    SamplingField("xtc_probability", "XTC chance", "How often the likeliest tokens are left out; 0: off."),
    SamplingField("xtc_threshold", "XTC threshold", "Tokens above this probability are left out then."),
    SamplingField(
        "mirostat",
        "Mirostat",
        "Keeps the surprise steady, in place of top-k, top-p, min-p, typical and XTC.",
        "choice",
        words=((0, "off"), (1, "version 1"), (2, "version 2")),
    ),
    SamplingField("mirostat_tau", "Mirostat target", "The surprise it aims at, in bits."),
    SamplingField("mirostat_eta", "Mirostat rate", "How quickly it corrects itself."),
)
END_OF_REPLY = (
    SamplingField(
        "stop",
        "Stop texts",
        "The reply ends before the first of them. One a line; \\n is a new line.",
        "texts",
    ),
    SamplingField(
        "ignore_eos",
        "May end its turn",
        "Without it, the reply goes on to its limit or until the context is full.",
        "choice",
        words=((False, "yes"), (True, "no")),
    ),
)
MORE = (("Repetition", REPETITION), ("Unlikely tokens", UNLIKELY_TOKENS), ("End of the reply", END_OF_REPLY))
