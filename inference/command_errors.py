"""What every headless command does with an error: one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click
import platformdirs

from inference.request import EngineError, ErrorCode

EXIT_REFUSED = 1
EXIT_ENGINE_DIED = 3


def exit_with(error: EngineError) -> NoReturn:
    click.echo(f"error: {' '.join(str(error).split())}", err=True)
    sys.exit(EXIT_ENGINE_DIED if error.code == ErrorCode.ENGINE_DIED else EXIT_REFUSED)


def log_file() -> Path:
    """Where the worker and the native library write while a command runs."""
    data = os.environ.get("EVERWARM_DATA_DIR") or platformdirs.user_data_dir("everwarm", appauthor=False)
    return Path(data) / "logs" / "command-line.log"
