"""The project's own Python environment, `.venv`, and what set-up has already done in it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from installers.logged_command import run_logged

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOG = ROOT / "build" / "set-up.log"
# The application reads the native library's folder from here; the file goes when the environment goes.
NATIVE_LIBRARY_MARKER = "everwarm_native_library.txt"

_RUN_LOCK = "requirements.lock"
_DEV_LOCK = "requirements-dev.lock"  # holds everything that _RUN_LOCK does, in the same versions


class Stamps:
    """Steps already done, each under the key of what it was done with: another key means "do it again"."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_current(self, step: str, key: str) -> bool:
        return self._read().get(step) == key

    def record(self, step: str, key: str) -> None:
        content = json.dumps({**self._read(), step: key}, indent=2)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(content + "\n", encoding="utf-8")
        os.replace(temporary, self._path)

    def _read(self) -> dict[str, str]:
        try:
            stamps = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return stamps if isinstance(stamps, dict) else {}


def stamps_of(prefix: Path) -> Stamps:
    return Stamps(prefix / "everwarm-set-up.json")


def python_of(prefix: Path) -> Path:
    return prefix / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def recorded_native_library(prefix: Path) -> Path | None:
    """The folder that the environment at `prefix` uses, if set-up has recorded one; it may be gone."""
    try:
        return Path((prefix / NATIVE_LIBRARY_MARKER).read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        return None


def ensure_environment(prefix: Path) -> None:
    """Create the environment with this Python, or again when it was made with another version."""
    version = "{}.{}".format(*sys.version_info[:2])
    if python_of(prefix).exists() and stamps_of(prefix).is_current("environment", version):
        return
    print(f"Creating {prefix.name} with Python {version} …", flush=True)
    run_logged(
        [sys.executable, "-m", "venv", "--clear", str(prefix)],
        LOG,
        doing=f"Creating {prefix}",
        remedy="Remove that folder if something else uses it, then run the same command again.",
    )
    stamps_of(prefix).record("environment", version)


def ensure_locked_packages(prefix: Path, *, dev: bool) -> None:
    """Install the versions in the lock file, each checked against its hash."""
    stamps = stamps_of(prefix)
    names = [_RUN_LOCK, _DEV_LOCK] if dev else [_RUN_LOCK]
    keys = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in names}
    if all(stamps.is_current(name, key) for name, key in keys.items()):
        return
    lock = ROOT / names[-1]
    print(f"Installing the packages in {lock.name} …", flush=True)
    run_logged(
        [str(python_of(prefix)), "-m", "pip", "install", "--require-hashes", "-r", str(lock)],
        LOG,
        doing=f"Installing the packages in {lock.name}",
    )
    for name, key in keys.items():
        stamps.record(name, key)
