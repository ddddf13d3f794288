"""Which chat template a model is used with: its own, another one from its file, a given one, or a built-in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inference.builtin_templates import BUILTIN_TEMPLATES, fitting_builtin
from inference.request import EngineError, ErrorCode

VARIANT, BUILTIN = "variant ", "built-in "
# For other prompts than a chat's.
_NO_CHAT_VARIANTS = ("tool_use", "rag")


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """source: "model", "variant NAME", "override" or "built-in NAME", to be shown. jinja: the template's text.
    reason: why it is not the model's own; None where it is, or where the user chose."""

    source: str
    jinja: str
    reason: str | None = None


def choices(chat_templates: Mapping[str, str]) -> list[TemplateChoice]:
    """All that can be chosen for a model, with its file's templates by name."""
    own = [
        TemplateChoice("model" if name == "default" else VARIANT + name, jinja)
        for name, jinja in sorted(chat_templates.items(), key=lambda item: (item[0] != "default", item[0]))
    ]
    return own + [
        TemplateChoice(BUILTIN + name, builtin.jinja) for name, builtin in BUILTIN_TEMPLATES.items()
    ]


def choose(
    chat_templates: Mapping[str, str],
    override: str | None,
    has_token: Callable[[str], bool],
    check: Callable[[str], str | None],
) -> TemplateChoice:
    """override: the `source` of one of choices(), or Jinja text; None: whatever fits best.

    has_token: whether the model has a token of its own for this text. check: why a text is no template at all; None:
    it is one. Raises EngineError(template_failed) where nothing fits: raw text would tell the model nothing.
    """
    if override is not None:
        return _overridden(chat_templates, override)
    reason = "the model's file has no chat template"
    for name in ("default", *sorted(chat_templates.keys() - {"default", *_NO_CHAT_VARIANTS})):
        if name not in chat_templates:
            continue
        refusal = check(chat_templates[name])
        if refusal is None:
            own = name == "default"
            return TemplateChoice(
                "model" if own else VARIANT + name, chat_templates[name], None if own else reason
            )
        reason = f"the model's own chat template {refusal}"
    builtin = fitting_builtin(has_token)
    if builtin is not None:
        return TemplateChoice(BUILTIN + builtin, BUILTIN_TEMPLATES[builtin].jinja, reason)
    raise EngineError(
        ErrorCode.TEMPLATE_FAILED,
        f"{reason}, and its vocabulary shows no format that would fit, so it cannot tell messages apart: choose a "
        "built-in template for it, or a model made for chat",
    )


def _overridden(chat_templates: Mapping[str, str], override: str) -> TemplateChoice:
    for choice in choices(chat_templates):
        if choice.source == override:
            return choice
    # Only what is no template text can be a name.
    if override == "model" or (override.startswith((VARIANT, BUILTIN)) and "{" not in override):
        raise EngineError(
            ErrorCode.TEMPLATE_FAILED,
            f"there is no chat template “{override}” for this model: choose another one, of "
            + ", ".join(choice.source for choice in choices(chat_templates)),
        )
    return TemplateChoice("override", override)
