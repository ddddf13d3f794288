"""A store in a fresh folder, and disks that are small or read-only for everyone, root included."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from desktop.conversations import ConversationStore


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite3"


@pytest.fixture
def store(database: Path) -> Iterator[ConversationStore]:
    store = ConversationStore.open(database)
    yield store
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def make_read_only(small_disk: Path) -> Callable[[], None]:
    """Remounts `small_disk`."""
    return lambda: subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True) and None


def fill(folder: Path) -> Path:
    """Leave no free byte; the ballast file returned gives it back when removed."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return ballast
