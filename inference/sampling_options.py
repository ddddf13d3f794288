"""The headless command's options that choose how tokens are sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from inference.command_errors import GivenPath
from inference.request import EngineError, ErrorCode
from inference.sampling_params import SamplingParams

_Command = TypeVar("_Command", bound=Callable[..., Any])


class TokenBias(click.ParamType[tuple[int, float]]):
    """ID=BIAS."""

    name = "ID=BIAS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        token, _, bias = str(value).partition("=")
        try:
            return int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is not a token id, = and a number", param, ctx)


_OPTIONS = [
    click.option("--max-tokens", type=int, metavar="N", help="Default: until the model stops."),
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy."),
    click.option(
        "--seed",
        type=int,
        metavar="N",
        help="Default: a new one, which is reported.",
    ),
    click.option("--top-k", type=int, metavar="N", help="Only the N likeliest tokens; 0: all."),
    click.option("--top-p", type=float, metavar="P", help="Only the likeliest that make up P together."),
    click.option(
        "--min-p", type=float, metavar="P", help="Only tokens at least P times as likely as the first."
    ),
    click.option("--typical-p", type=float, metavar="P", help="Locally typical sampling; 1: off."),
    click.option("--repeat-penalty", type=float, metavar="X", help="1: off."),
    click.option("--presence-penalty", type=float, metavar="X", help="0: off."),
    click.option("--frequency-penalty", type=float, metavar="X", help="0: off."),
    click.option("--penalty-last-n", type=int, metavar="N", help="Tokens that the penalties look back."),
    click.option("--dry-multiplier", type=float, metavar="X", help="DRY against repetitions; 0: off."),
    click.option("--dry-base", type=float, metavar="X"),
    click.option("--dry-allowed-length", type=int, metavar="N", help="Tokens that may repeat freely."),
    click.option("--dry-last-n", type=int, metavar="N", help="Tokens that DRY looks back."),
    click.option(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        multiple=True,
        metavar="TEXT",
        help="Repeatable; in place of the usual ones.",
    ),
    click.option("--xtc-probability", type=float, metavar="P", help="0: off."),
    click.option("--xtc-threshold", type=float, metavar="P"),
    click.option("--mirostat", type=int, metavar="0|1|2", help="In place of the cuts above; 0: off."),
    click.option("--mirostat-tau", type=float, metavar="X", help="Target surprise in bits."),
    click.option("--mirostat-eta", type=float, metavar="X", help="Learning rate."),
    click.option(
        "--logit-bias",
        type=TokenBias(),
        multiple=True,
        metavar="ID=BIAS",
        help="Repeatable; -100 bans a token.",
    ),
    click.option("--grammar", type=GivenPath(), metavar="FILE.gbnf", help="The reply follows this grammar."),
    click.option("--json-schema", type=GivenPath(), metavar="FILE.json", help="The reply is such JSON."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Repeatable; the reply ends before it."),
    click.option("--ignore-eos", is_flag=True, help="The model cannot end its turn."),
    click.option("--top-logprobs", type=int, metavar="N", help="With --json: the N likeliest at each step."),
]


def sampling_options(command: _Command) -> _Command:
    """Adds the options; the command takes them together as **sampling, for read_sampling."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_sampling(options: dict[str, Any]) -> SamplingParams:
    """Raises click.UsageError for a value out of range, EngineError for a file that cannot be read."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    for name in ("grammar", "json_schema"):
        if name in given:
            given[name] = _read_text(given[name])
    try:
        return SamplingParams(**given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise EngineError(ErrorCode.PROMPT_EMPTY, f"{path}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError as error:
        raise EngineError(ErrorCode.PROMPT_EMPTY, f"{path}: not UTF-8") from error
