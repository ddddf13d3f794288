"""Widgets are tested without a screen, and async tests on the loop the window runs on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtWidgets import QApplication
from qasync import QEventLoop

from desktop.conversations import NotSaved
from desktop.conversations import store as store_module
from tests.desktop.running_window import RunningWindow


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"qt": lambda: QEventLoop(QApplication.instance() or QApplication([]))}


@pytest.fixture
def starter_model(tmp_path: Path) -> Path:
    """A file where the scripted engine's starter model would be; nobody reads it."""
    path = tmp_path / "starter.gguf"
    path.touch()
    return path


@pytest.fixture
def make_window(tmp_path: Path, starter_model: Path) -> Callable[..., RunningWindow]:
    """Windows on one and the same data folder, each to be used in an `async with`."""

    def make(model: Path | None = starter_model) -> RunningWindow:
        return RunningWindow(tmp_path / "data", model)

    return make


@pytest.fixture
def window(make_window: Callable[..., RunningWindow]) -> RunningWindow:
    """The first start: empty data folder, a starter model."""
    return make_window()


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """disk_full(True): no write of a conversation store happens any more, until disk_full(False)."""
    is_full = False
    original = store_module.writing

    @contextlib.contextmanager
    def writing(db: object) -> Iterator[None]:
        if is_full:
            raise NotSaved("Not saved: the disk is full. Free some space, then try again.")
        with original(db):
            yield

    def set_full(full: bool) -> None:
        nonlocal is_full
        is_full = full

    monkeypatch.setattr(store_module, "writing", writing)
    return set_full
