"""Where faults go: the whole story into the log file, one line to the window, never a traceback to the reader."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from PySide6.QtCore import QMessageLogContext, QObject, QtMsgType, Signal, qInstallMessageHandler

LOG_NAME = "window.log"
MAX_LOG_BYTES = 1_000_000
KEPT_LOGS = 3

log = logging.getLogger("everwarm")
_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def start_log(log_folder: Path) -> Path:
    """The log of this process, and Qt's messages with it. It never holds what people write in their chats."""
    path = log_folder / LOG_NAME
    # A full disk must not make every log line print a traceback of its own.
    logging.raiseExceptions = False
    handler = RotatingFileHandler(
        path, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="utf-8", delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    qInstallMessageHandler(_log_qt_message)
    return path


class ErrorReport(QObject):
    """Catches what nobody caught: in callbacks, tasks, threads and Qt slots."""

    told = Signal(str)
    """One line for the window."""

    def __init__(self, log_path: Path) -> None:
        super().__init__()
        self._log_path = log_path
        self._is_telling = False

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        sys.excepthook = self._uncaught
        threading.excepthook = self._uncaught_in_thread
        loop.set_exception_handler(self._uncaught_in_loop)

    def report(self, error: BaseException) -> None:
        log.error("uncaught %s", type(error).__name__, exc_info=error)
        if self._is_telling:
            return  # Telling is itself what failed.
        self._is_telling = True
        try:
            self.told.emit(
                f"Something went wrong inside Everwarm ({type(error).__name__}). "
                f"Your chats are saved; details are in {self._log_path}."
            )
        finally:
            self._is_telling = False

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        self.report(error.with_traceback(traceback))

    def _uncaught_in_thread(self, args: threading.ExceptHookArgs) -> None:
        # Widgets belong to the main thread: from another one the log alone is safe.
        log.error("uncaught in thread %s", args.thread and args.thread.name, exc_info=args.exc_value)

    def _uncaught_in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self.report(error)
        else:
            log.error("event loop: %s", context.get("message"))


def _log_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    logging.getLogger("qt").log(_QT_LEVELS.get(kind, logging.WARNING), "%s", message)
