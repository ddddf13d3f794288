"""The engine's advice as the command line's options: what it says of settings.toml is the window's, which no command
reads."""

from __future__ import annotations

import re

from inference.request import ErrorCode

_AS_OPTIONS = (
    (re.compile(r"n_gpu_layers = 0 in settings\.toml"), "--gpu-layers none"),
    (re.compile(r"n_ctx = (\d+) in settings\.toml"), r"--context \1"),
    (
        re.compile(r", or raise store_budget_bytes in settings\.toml"),
        ": the store takes a tenth of what is free",
    ),
)


def advice_for_commands(message: str, code: ErrorCode | None = None) -> str:
    for written, option in _AS_OPTIONS:
        message = written.sub(option, message)
    if code is ErrorCode.TEMPLATE_FAILED:
        message += " (--template NAME; --help lists the names)"
    return message
