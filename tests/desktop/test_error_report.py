from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import qInstallMessageHandler, qWarning

from desktop.error_report import ErrorReport, start_log


@pytest.fixture
def log_path(tmp_path: Path) -> Iterator[Path]:
    """A started log; logging and the hooks are as before once the test is over."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions, sys.excepthook, threading.excepthook
    yield start_log(tmp_path)
    for handler in set(root.handlers) - set(before[0]):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[1])
    logging.raiseExceptions, sys.excepthook, threading.excepthook = before[2:]
    qInstallMessageHandler(None)


def logged(text: str, log_path: Path) -> bool:
    return text in log_path.read_text()


async def test_a_fault_is_one_line_for_the_reader_and_a_traceback_in_the_log(log_path: Path) -> None:
    report = ErrorReport(log_path)
    told: list[str] = []
    report.told.connect(told.append)
    report.install(asyncio.get_running_loop())
    try:
        raise ZeroDivisionError("secret detail")
    except ZeroDivisionError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    [line] = told
    assert "\n" not in line
    assert "secret detail" not in line
    assert str(log_path) in line
    assert logged("secret detail", log_path)
    assert logged("Traceback", log_path)


async def test_a_fault_while_one_is_told_ends_there(log_path: Path) -> None:
    report = ErrorReport(log_path)
    report.told.connect(lambda _: 1 / 0)
    report.install(asyncio.get_running_loop())
    report.report(ValueError("first"))
    assert logged("first", log_path)
    assert logged("ZeroDivisionError", log_path)


async def test_a_fault_in_a_callback_of_the_loop_is_reported(log_path: Path) -> None:
    report = ErrorReport(log_path)
    told = asyncio.Event()
    report.told.connect(lambda _: told.set())
    loop = asyncio.get_running_loop()
    report.install(loop)
    loop.call_exception_handler({"message": "callback failed", "exception": ValueError("x")})
    assert told.is_set()


async def test_a_fault_in_another_thread_goes_to_the_log_alone(log_path: Path) -> None:
    report = ErrorReport(log_path)
    told: list[str] = []
    report.told.connect(told.append)
    report.install(asyncio.get_running_loop())
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    assert told == []
    assert logged("ZeroDivisionError", log_path)


def test_what_qt_says_is_logged(log_path: Path) -> None:
    qWarning("the painter is unhappy")
    assert "the painter is unhappy" in log_path.read_text()
