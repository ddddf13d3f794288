"""The application: one data folder, one window, one engine, joined on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PySide6.QtWidgets import QApplication, QMessageBox
from qasync import QEventLoop

from desktop.conversations import DatabaseUnusable
from desktop.error_report import ErrorReport, log, start_log
from desktop.everwarm import Everwarm
from desktop.garbage_collection import MainThreadGarbageCollection
from desktop.icons import app_icon
from desktop.paths import DataFolderUnusable, DataPaths
from desktop.settings import load_settings
from desktop.single_instance import SingleInstance
from inference import EngineClient, EngineEvent, WorkerConfig

NO_DISPLAY = (
    "Everwarm needs a display, and there is none (WAYLAND_DISPLAY is not set, and DISPLAY is not set or names no server "
    "that answers)."
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 after quitting or after raising a window that was open; 1 where nothing could be started."""
    paths = DataPaths.from_environment()
    trouble = _prepare(paths)
    if not _has_display():
        print(trouble or NO_DISPLAY, file=sys.stderr)
        return 1
    app = QApplication(list(sys.argv if arguments is None else arguments))
    app.setApplicationName("everwarm")
    app.setApplicationDisplayName("Everwarm")
    app.setDesktopFileName("everwarm")
    app.setWindowIcon(app_icon())
    # The window hides at once when one quits, while what is unsaved still goes to disk.
    app.setQuitOnLastWindowClosed(False)
    instance = SingleInstance(paths.root)
    if trouble is not None:
        # A full disk is no reason not to raise the window that is there.
        if paths.root.is_dir() and instance.ask_owner_to_raise():
            return _raised()
        return _refuse(app, trouble)
    try:
        if not instance.acquire():
            return _leave_to_owner(app, instance, paths)
        log_path = start_log(paths.logs)
        loop = QEventLoop(app)
        loop.set_default_executor(ThreadPoolExecutor(max_workers=2, thread_name_prefix="background"))
        MainThreadGarbageCollection(app).start()
        with loop:
            exit_code: int = loop.run_until_complete(_run(app, paths, instance, log_path))
            return exit_code
    finally:
        instance.release()


async def _run(app: QApplication, paths: DataPaths, instance: SingleInstance, log_path: Path) -> int:
    loop = asyncio.get_running_loop()
    report = ErrorReport(log_path)
    report.install(loop)
    everwarm = Everwarm(app, paths, lambda on_event: _create_engine(paths, on_event), report)
    instance.raise_requested.connect(everwarm.window.come_to_front)
    app.commitDataRequest.connect(lambda _: everwarm.window.quit_requested.emit())
    for number in (signal.SIGINT, signal.SIGTERM):
        # Windows has no signal handlers on its loop; there the window's close button and Ctrl+Q quit.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, everwarm.window.quit_requested.emit)
    try:
        await everwarm.start()
    except DatabaseUnusable as error:
        everwarm.window.hide()
        await everwarm.quit()
        return _refuse(app, str(error))
    log.info("started with %s", paths.root)
    await everwarm.closed.wait()
    return 0


def _create_engine(paths: DataPaths, on_event: Callable[[EngineEvent], None]) -> EngineClient:
    budget_bytes = load_settings(paths.settings).settings.store_budget_bytes
    config = WorkerConfig(paths.kv, paths.logs / "engine.log", budget_bytes, paths.load_marks)
    return EngineClient(config, on_event)


def _prepare(paths: DataPaths) -> str | None:
    """None: the data folder can be used; else one line saying why not."""
    try:
        paths.prepare()
    except DataFolderUnusable as error:
        return str(error)
    return None


def _has_display() -> bool:
    """Qt ends the process with an abort where its platform cannot start, so look first."""
    if sys.platform in ("win32", "darwin") or os.environ.get("QT_QPA_PLATFORM"):
        return True
    return bool(os.environ.get("WAYLAND_DISPLAY") or (os.environ.get("DISPLAY") and _x_server_answers()))


def _x_server_answers() -> bool:
    """DISPLAY may name a server that is gone."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return True  # not to be told without it
    xcb.xcb_connect.restype = ctypes.c_void_p
    connection = ctypes.c_void_p(xcb.xcb_connect(None, None))
    answers = not xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return answers


def _leave_to_owner(app: QApplication, instance: SingleInstance, paths: DataPaths) -> int:
    if instance.ask_owner_to_raise():
        return _raised()
    return _refuse(
        app,
        f"Everwarm is already running on {paths.root} but does not answer. Nothing was changed. "
        "Close it, or end its process, then start again.",
    )


def _raised() -> int:
    print("Everwarm is running already; its window was brought to the front.")
    return 0


def _refuse(app: QApplication, trouble: str) -> int:
    """There is no window that could say it: one line for a terminal, a dialog for a desktop."""
    print(trouble, file=sys.stderr)
    if app.platformName() not in ("offscreen", "minimal"):
        QMessageBox.critical(None, "Everwarm cannot start", trouble)
    return 1
