"""What is told of chat templates: which a model can be used with, and what one reply was written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inference.template_mends import Mend
from inference.template_options import TemplateOption


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """source: what a request that names no template is written with: "model", "variant NAME" or "built-in NAME"; None:
    nothing fits, such a request is refused. reason: why it is not the model's own; None where it is.
    choices: every source that a request can name. options: of the templates that have any, by source.
    """

    source: str | None
    reason: str | None = None
    choices: tuple[str, ...] = ()
    options: Mapping[str, tuple[TemplateOption, ...]] = field(default_factory=dict)

    def options_of(self, chosen: str | None) -> tuple[TemplateOption, ...]:
        """Of the template that a request which names this one is written with."""
        source = self.source if chosen is None else chosen
        return () if source is None else tuple(self.options.get(source, ()))


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """source: as in TemplateInfo, or "override" for a text that was given. mends: what was done to the chat for the
    template to take it."""

    source: str
    mends: tuple[Mend, ...] = ()
