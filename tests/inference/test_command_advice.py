"""What the engine advises can be done on the command line, which reads no settings.toml."""

from __future__ import annotations

from inference.command_advice import advice_for_commands
from inference.command_line import cli
from inference.kvcache.entry_intake import STORE_FULL
from inference.remedies import remedies
from inference.request import ErrorCode


def test_settings_of_the_window_are_not_advised() -> None:
    assert "settings.toml" in STORE_FULL
    assert "settings.toml" not in advice_for_commands(STORE_FULL)


def test_the_remedies_are_options_that_exist() -> None:
    advice = advice_for_commands(remedies(8192, None))
    assert "fewer GPU layers or none (--gpu-layers none)" in advice
    assert "a smaller context (--context 2048)" in advice
    options = {option for param in cli.commands["generate"].params for option in param.opts}
    assert {"--gpu-layers", "--context", "--template"} <= options


def test_a_template_that_failed_is_told_with_the_option_that_chooses_another() -> None:
    assert "--template NAME" in advice_for_commands("it failed: choose another", ErrorCode.TEMPLATE_FAILED)
    assert advice_for_commands("the prompt is empty", ErrorCode.PROMPT_EMPTY) == "the prompt is empty"
