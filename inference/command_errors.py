"""What every headless command does with errors: one line on stderr and an exit code, whoever found them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click
import platformdirs

from inference.command_advice import advice_for_commands
from inference.request import EngineError, ErrorCode

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_ENGINE_DIED = 3


class GivenPath(click.ParamType[Path]):
    """A path that can be written down: not empty, and in UTF-8, as it travels to the engine."""

    name = "path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        text = str(value)
        if not text:
            self.fail("the path is empty", param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!a} is not UTF-8: rename the file or folder", param, ctx)
        return Path(text)


def run_command(command: click.Command) -> NoReturn:
    """Run a click command and end the process; click's own four lines about a wrong option become one."""
    try:
        result = command.main(standalone_mode=False)
    except click.ClickException as error:
        _complain(f"{error.format_message()} (--help tells more)")
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        sys.exit(EXIT_REFUSED)
    sys.exit(result if isinstance(result, int) else 0)


def exit_with(error: EngineError) -> NoReturn:
    _complain(advice_for_commands(str(error), error.code))
    sys.exit(EXIT_ENGINE_DIED if error.code == ErrorCode.ENGINE_DIED else EXIT_REFUSED)


def warn(message: str) -> None:
    """Something that does not end the command."""
    click.echo(f"warning: {' '.join(advice_for_commands(message).split())}", err=True)


def show(text: str, *, newline: bool = True) -> None:
    """Print to stdout; ends the command where that cannot be written."""
    try:
        click.echo(text, nl=newline)
    except OSError as error:
        # What is left in the buffer would be tried again at exit, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain(f"the output cannot be written ({error.strerror or error})")
        sys.exit(EXIT_REFUSED)


def _complain(message: str) -> None:
    click.echo(f"error: {' '.join(message.split())}", err=True)


def log_file() -> Path:
    """Where the worker and the native library write while a command runs."""
    data = os.environ.get("EVERWARM_DATA_DIR") or platformdirs.user_data_dir("everwarm", appauthor=False)
    return Path(data) / "logs" / "command-line.log"
