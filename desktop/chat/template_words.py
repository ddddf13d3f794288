"""Chat templates in the reader's words."""

from __future__ import annotations

from inference import TemplateUse

_MEND_WORDS = {
    "system prompt in the first user message": "it knows no system prompt, so that was folded into the first message",
    "messages of one role joined": "messages in a row from the same side were joined",
}


def source_words(source: str) -> str:
    """One of TemplateInfo.choices, or "override"."""
    kind, _, name = source.partition(" ")
    match kind:
        case "model":
            return "the model's own"
        case "variant":
            return f"{name}, another one from the model's file"
        case "built-in":
            return f"{name}, built into Everwarm"
        case _:
            return "a text of your own"


def template_words(template: TemplateUse) -> str:
    """For a reply's details."""
    mends = [_MEND_WORDS.get(mend, mend) for mend in template.mends]
    return "; ".join([source_words(template.source), *mends])
