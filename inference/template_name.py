"""The headless commands' option that chooses a chat template by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from inference.builtin_templates import BUILTIN_TEMPLATES
from inference.template_choice import BUILTIN, VARIANT

_NAMES = f"model, “{VARIANT}NAME” of the model's file, or built in: {', '.join(BUILTIN_TEMPLATES)}"


class TemplateName(click.ParamType[str]):
    """The `source` of a TemplateChoice; "built-in " may be left out. Whether the model has it, the engine tells."""

    name = "NAME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        name = text.removeprefix(BUILTIN)
        if name in BUILTIN_TEMPLATES:
            return BUILTIN + name
        if text != "model" and not (text.startswith(VARIANT) and "{" not in text):
            self.fail(f"there is no chat template {text!r}: give {_NAMES}", param, ctx)
        return text


def template_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `template`: None where it is not given."""
    option = click.option(
        "--template",
        type=TemplateName(),
        help=f"The chat template to write --chat with: {_NAMES}. Default: the model's own, or one that fits.",
    )
    return option(command)
