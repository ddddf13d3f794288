"""How the next token is chosen from the logits."""

from __future__ import annotations

from dataclasses import dataclass, fields

from inference.messages import well_formed

MAX_SEED = 0xFFFFFFFE
"""0xFFFFFFFF is llama.cpp's "draw one yourself", so it cannot be recorded and repeated."""
MAX_WINDOW = 1_000_000
MAX_COUNT = 2**31 - 1
MAX_STOP_STRINGS, MAX_STOP_LENGTH = 16, 256
MAX_GRAMMAR_LENGTH = 100_000
MAX_TOP_LOGPROBS = 100

# Ends of the range (both within), and what the range is called. Whole numbers first, then fractions.
_WHOLE_RANGES: dict[str, tuple[int, int, str]] = {
    "top_k": (0, MAX_COUNT, "0 (off) or more"),
    "penalty_last_n": (0, MAX_WINDOW, f"between 0 (off) and {MAX_WINDOW}"),
    "dry_allowed_length": (1, 1000, "between 1 and 1000"),
    "dry_last_n": (0, MAX_WINDOW, f"between 0 (off) and {MAX_WINDOW}"),
    "mirostat": (0, 2, "0 (off), 1 or 2"),
    "seed": (0, MAX_SEED, f"between 0 and {MAX_SEED}"),
    "max_tokens": (1, MAX_COUNT, "1 or more"),
    "top_logprobs": (0, MAX_TOP_LOGPROBS, f"between 0 (none) and {MAX_TOP_LOGPROBS}"),
}
# 5e-324 is the least float above 0.
_FRACTION_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0.0, 100.0, "between 0 and 100"),
    "top_p": (5e-324, 1.0, "above 0 and at most 1"),
    "min_p": (0.0, 1.0, "between 0 and 1"),
    "typical_p": (5e-324, 1.0, "above 0 and at most 1"),
    "repeat_penalty": (0.01, 100.0, "between 0.01 and 100"),
    "presence_penalty": (-100.0, 100.0, "between -100 and 100"),
    "frequency_penalty": (-100.0, 100.0, "between -100 and 100"),
    "dry_multiplier": (0.0, 100.0, "between 0 (off) and 100"),
    "dry_base": (1.0, 100.0, "between 1 and 100"),
    "xtc_probability": (0.0, 1.0, "between 0 (off) and 1"),
    "xtc_threshold": (0.0, 1.0, "between 0 and 1"),
    "mirostat_tau": (0.0, 100.0, "between 0 and 100"),
    "mirostat_eta": (0.0, 10.0, "between 0 and 10"),
}
MAX_BIAS = 100.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of one reply's sampler. None: what the model's file recommends (see sampling_defaults), else neutral.

    temperature 0 is greedy: the likeliest token after biases and penalties, whatever else is set.
    top_k 0, top_p 1, min_p 0, typical_p 1, xtc_probability 0 and mirostat 0 each leave their sampler out; so do
    repeat_penalty 1 with presence_penalty and frequency_penalty 0, and dry_multiplier 0.
    penalty_last_n, dry_last_n: how many of the last tokens the penalties and DRY look at, the prompt's included.
    dry_sequence_breakers: texts that a repetition is not followed across.
    mirostat 1 or 2 takes the place of top_k, top_p, min_p, typical_p and xtc. logit_bias: (token id, what is added to
    its logit); -100 bans it.
    seed None draws a new seed per reply; the seed really used is reported with the reply.
    grammar: GBNF with a rule `root`; json_schema: JSON text; the reply then follows it.
    stop: texts that end the reply; it holds what came before the first of them.
    max_tokens None: until the model ends its turn or the context is full. ignore_eos: it cannot end its turn.
    top_logprobs: how many tokens' log-probabilities are told at each step.

    Raises ValueError with a line that names the field and its range. Lists are taken for tuples, as JSON has them.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int | None = None
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    json_schema: str | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                self._check_number(name)
        for name in _REQUIRED:
            self._check_number(name)
        self._set("dry_sequence_breakers", _texts("dry_sequence_breakers", self.dry_sequence_breakers))
        self._set("logit_bias", _biases(self.logit_bias))
        self._set("stop", _texts("stop", self.stop))
        for name in ("grammar", "json_schema"):
            self._check_grammar(name)
        if self.grammar is not None and self.json_schema is not None:
            raise ValueError("json_schema must be left out where a grammar is given")
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos must be true or false, not {self.ignore_eos!r}")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_number(self, name: str) -> None:
        value = getattr(self, name)
        if name in _WHOLE_RANGES:
            low, high, range_text = _WHOLE_RANGES[name]
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be a whole number, {range_text}, not {value!r}")
            _require(low <= value <= high, name, range_text, value)
        else:
            least, most, range_text = _FRACTION_RANGES[name]
            self._set(name, _number(name, value, least, most, range_text))

    def _check_grammar(self, name: str) -> None:
        text = getattr(self, name)
        if text is None:
            return
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise ValueError(f"{name} must be a text that is not empty, without NUL characters")
        if len(text) > MAX_GRAMMAR_LENGTH:
            raise ValueError(f"{name} must be at most {MAX_GRAMMAR_LENGTH} characters, not {len(text)}")
        self._set(name, well_formed(text))


_OPTIONAL = tuple(
    field.name
    for field in fields(SamplingParams)
    if field.default is None and field.name not in ("grammar", "json_schema")
)
_REQUIRED = tuple(name for name in (*_WHOLE_RANGES, *_FRACTION_RANGES) if name not in _OPTIONAL)


def _require(holds: bool, name: str, range_text: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {range_text}, not {value}")


def _number(name: str, value: object, least: float, most: float, range_text: str) -> float:
    # bool is an int to Python, not to the user.
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number {range_text}, not {value!r}")
    # A NaN fails every comparison, so it ends here too.
    _require(least <= value <= most, name, range_text, value)
    return float(value)


def _texts(name: str, texts: object) -> tuple[str, ...]:
    range_text = f"at most {MAX_STOP_STRINGS} texts of 1 to {MAX_STOP_LENGTH} characters"
    if not isinstance(texts, list | tuple) or len(texts) > MAX_STOP_STRINGS:
        raise ValueError(f"{name} must be {range_text}")
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_LENGTH:
            raise ValueError(f"{name} must be {range_text}, not {str(text)[:40]!r}")
    return tuple(well_formed(text) for text in texts)


def _biases(pairs: object) -> tuple[tuple[int, float], ...]:
    range_text = f"pairs of a token id and a number between -{MAX_BIAS:.0f} and {MAX_BIAS:.0f}"
    if not isinstance(pairs, list | tuple):
        raise ValueError(f"logit_bias must be {range_text}, not {pairs!r}")
    return tuple(_bias(pair, range_text) for pair in pairs)


def _bias(pair: object, range_text: str) -> tuple[int, float]:
    if isinstance(pair, list | tuple) and len(pair) == 2:
        token, bias = pair
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_COUNT:
            return token, _number("logit_bias", bias, -MAX_BIAS, MAX_BIAS, range_text)
    raise ValueError(f"logit_bias must be {range_text}, not {pair!r}")
