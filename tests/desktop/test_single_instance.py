from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from desktop.single_instance import SingleInstance

ROOT = Path(__file__).resolve().parents[2]

OWNER = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from desktop.single_instance import SingleInstance
app = QCoreApplication([])
instance = SingleInstance(Path(sys.argv[1]))
instance.raise_requested.connect(lambda: print("raised", flush=True))
print(instance.acquire(), flush=True)
app.exec()
"""


@pytest.fixture
def owner(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_instance_raises_the_window_of_the_first(
    owner: subprocess.Popen[str], tmp_path: Path, qapp: object
) -> None:
    second = SingleInstance(tmp_path)
    assert not second.acquire()
    assert second.ask_owner_to_raise(timeout_ms=10_000)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "raised\n"


def test_an_owner_that_hangs_is_told_apart(
    owner: subprocess.Popen[str], tmp_path: Path, qapp: object
) -> None:
    owner.send_signal(signal.SIGSTOP)
    second = SingleInstance(tmp_path)
    assert not second.acquire()
    assert not second.ask_owner_to_raise(timeout_ms=200)


def test_a_killed_owner_leaves_the_data_folder_free(
    owner: subprocess.Popen[str], tmp_path: Path, qapp: object
) -> None:
    owner.kill()
    owner.wait()
    second = SingleInstance(tmp_path)
    assert second.acquire()
    second.release()


def test_the_next_owner_answers_although_a_killed_one_left_its_socket(
    owner: subprocess.Popen[str], tmp_path: Path, qtbot: QtBot
) -> None:
    owner.kill()
    owner.wait()
    second = SingleInstance(tmp_path)
    assert second.acquire()
    raised: list[None] = []
    second.raise_requested.connect(lambda: raised.append(None))
    third = OWNER.replace("app.exec()", "sys.exit(not instance.ask_owner_to_raise(10_000))")
    asking = subprocess.Popen(
        [sys.executable, "-c", third, str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    qtbot.waitUntil(lambda: asking.poll() is not None, timeout=60_000)
    assert asking.returncode == 0
    assert raised == [None]
    second.release()


def test_two_data_folders_do_not_meet(tmp_path: Path, qapp: object) -> None:
    instances = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        instances.append(SingleInstance(tmp_path / name))
    assert all(instance.acquire() for instance in instances)
    for instance in instances:
        instance.release()
