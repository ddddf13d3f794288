"""Windows on one screen, each test with a data folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.real_window import RealWindow, screen

Open = Callable[..., RealWindow]


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    with screen() as name:
        yield name


@pytest.fixture
def open_window(display: str, tmp_path: Path) -> Iterator[Open]:
    opened: list[RealWindow] = []

    def open_window(*, hold_engine: bool = False) -> RealWindow:
        """hold_engine: suspend the worker as soon as there is one, before it has loaded a model."""
        window = RealWindow(display, tmp_path / "data")
        opened.append(window)
        if hold_engine:
            window.worker().suspend()
        window.wait_for_window()
        return window

    yield open_window
    for window in opened:
        window.kill()
