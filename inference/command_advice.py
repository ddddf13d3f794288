"""The engine's advice as the command line's options; in the window it stands beside buttons."""

from __future__ import annotations

import re

from inference.request import ErrorCode

_CONTEXT = re.compile(r"a smaller context \(([0-9,]+) tokens\)")
_TEXTS = {
    "fewer GPU layers or none": "fewer GPU layers or none (--gpu-layers none)",
    # The window's; no command reads it.
    ", or raise store_budget_bytes in settings.toml": ": the store takes a tenth of what is free",
}


def advice_for_commands(message: str, code: ErrorCode | None = None) -> str:
    for written, option in _TEXTS.items():
        message = message.replace(written, option)
    message = _CONTEXT.sub(
        lambda found: f"a smaller context (--context {found[1].replace(',', '')})", message
    )
    if code is ErrorCode.TEMPLATE_FAILED:
        message += " (--template NAME; --help lists the names)"
    return message
