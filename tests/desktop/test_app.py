"""The application as a process: what it does where it cannot start, and how it ends."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def start(data_folder: Path, **environment: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.Popen(
        [sys.executable, "-m", "desktop"],
        cwd=ROOT,
        env={**known, "EVERWARM_DATA_DIR": str(data_folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refusal(data_folder: Path, **environment: str) -> str:
    """The one line a start that is refused leaves on stderr."""
    process = start(data_folder, **environment)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    [line] = errors.splitlines()
    return line


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.02)


def test_without_a_display_it_says_so(tmp_path: Path) -> None:
    assert "needs a display" in refusal(tmp_path / "data", QT_QPA_PLATFORM="")


@pytest.mark.skipif(sys.platform != "linux", reason="X is this system's display only")
def test_with_a_display_that_is_gone_it_says_so_and_qt_does_not_abort(tmp_path: Path) -> None:
    assert "names no server" in refusal(tmp_path / "data", QT_QPA_PLATFORM="", DISPLAY=":4711")


def test_a_data_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    line = refusal(tmp_path / "data", QT_QPA_PLATFORM="offscreen")
    assert str(tmp_path / "data") in line
    assert "EVERWARM_DATA_DIR" in line


@pytest.mark.skipif(os.name == "nt", reason="permissions work differently there")
def test_a_read_only_data_folder_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "data").mkdir(mode=0o500)
    assert "permission" in refusal(tmp_path / "data", QT_QPA_PLATFORM="offscreen")


def test_a_damaged_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    database = tmp_path / "data" / "chats.sqlite3"
    database.parent.mkdir()
    database.write_bytes(b"this is no database" * 500)
    before = database.read_bytes()
    assert "damaged" in refusal(tmp_path / "data", QT_QPA_PLATFORM="offscreen")
    assert database.read_bytes() == before


def test_an_owner_that_does_not_answer_is_not_disturbed(tmp_path: Path) -> None:
    first = start(tmp_path / "data", QT_QPA_PLATFORM="offscreen")
    try:
        wait_for(tmp_path / "data" / "chats.sqlite3-wal")
        first.send_signal(signal.SIGSTOP)
        assert "does not answer" in refusal(tmp_path / "data", QT_QPA_PLATFORM="offscreen")
    finally:
        first.send_signal(signal.SIGCONT)
        first.terminate()
        assert first.wait(60) == 0
    with sqlite3.connect(tmp_path / "data" / "chats.sqlite3") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_end_quits_as_the_menu_does(tmp_path: Path, name: str) -> None:
    process = start(tmp_path / "data", QT_QPA_PLATFORM="offscreen")
    wait_for(tmp_path / "data" / "logs" / "engine.log")
    process.send_signal(signal.Signals[name])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "window_geometry" in (tmp_path / "data" / "settings.toml").read_text()
