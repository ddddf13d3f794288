"""The options of chat templates that a plain chat can make use of, as the template's own text shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OptionValue = bool | int | float | str

# One that goes on about the reasoning of earlier turns stands behind the one about the reply's own.
_SWITCHES = ("enable_thinking", "thinking", "preserve_thinking", "preserved_thinking", "clear_thinking")
# With the words for a template that only writes the one it is given.
_LEVELS: dict[str, tuple[str, ...]] = {
    "reasoning_effort": ("low", "medium", "high"),
    "think_render_option": (),
}
_AMOUNTS = {"thinking_budget": (0, 512, 1024, 2048, 4096, 8192, 16384)}
_MAX_LEVELS = 8


@dataclass(frozen=True, slots=True)
class TemplateOption:
    """A variable that the template reads. values: what it can be given; without one the template decides itself."""

    name: str
    values: tuple[OptionValue, ...]


def template_options(variables: Mapping[str, Sequence[str]]) -> tuple[TemplateOption, ...]:
    """Those of a template's variables that are known as options. variables: with the texts in the template's hands.

    Most others hold what a plain chat has not (tools, documents, images), or are the template's own.
    """
    options: list[TemplateOption] = []
    for name in _SWITCHES:
        # Where both are known they are one, under its former and its present name.
        if name in variables and not (name == "thinking" and "enable_thinking" in variables):
            options.append(TemplateOption(name, (True, False)))
    for name, words in _LEVELS.items():
        found = tuple(variables.get(name, ()))
        levels = found if len(found) > 1 else words
        if name in variables and levels:
            options.append(TemplateOption(name, levels[:_MAX_LEVELS]))
    options += [TemplateOption(name, amounts) for name, amounts in _AMOUNTS.items() if name in variables]
    return tuple(options)
