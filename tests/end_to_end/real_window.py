"""The application as a person meets it: a window on a screen of its own, real keys, files on a real disk."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

# Generous: what is waited for is an event, and only a broken program makes it run out.
TIMEOUT_S = 120.0

# A small model may ramble until its context is full; then what is waited for takes as long as that.
SAMPLING = "[sampling]\ntemperature = 0\nmax_tokens = 600\n"


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"in vain waited until {what}"
        time.sleep(0.05)


@contextmanager
def screen() -> Iterator[str]:
    """An X display with a window manager; yields its name, e.g. ":3"."""
    read_end, write_end = os.pipe()
    command = ["Xvfb", "-displayfd", str(write_end), "-screen", "0", "1280x860x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        display = f":{stream.readline().strip()}"
    environment = {**os.environ, "DISPLAY": display}
    window_manager = subprocess.Popen(["openbox"], env=environment, stderr=subprocess.DEVNULL)
    try:
        yield display
    finally:
        window_manager.terminate()
        window_manager.wait()
        server.terminate()
        server.wait()


@dataclass
class RealWindow:
    """One run of the application. data: its data folder, kept over several runs."""

    display: str
    data: Path
    process: subprocess.Popen[bytes] = field(init=False)
    window_id: str = field(init=False, default="")

    def __post_init__(self) -> None:
        settings = self.data / "settings.toml"
        if not settings.exists():
            self.data.mkdir(parents=True, exist_ok=True)
            settings.write_text(SAMPLING)
        self._log_path = self.data / "logs" / "window.log"
        self._logged_before = self._log_path.stat().st_size if self._log_path.exists() else 0
        self.process = self.start()

    @property
    def environment(self) -> dict[str, str]:
        environment = {**os.environ, "DISPLAY": self.display, "EVERWARM_DATA_DIR": str(self.data)}
        environment["EVERWARM_EVENT_LOG"] = str(self.event_log)
        environment["QT_QPA_PLATFORM"] = "xcb"
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        return environment

    @property
    def event_log(self) -> Path:
        return self.data.with_name(self.data.name + "-replies.jsonl")

    def start(self) -> subprocess.Popen[bytes]:
        """Another process on the same data and display."""
        return subprocess.Popen([sys.executable, "-m", "desktop"], env=self.environment)

    def wait_for_window(self) -> None:
        def is_active() -> bool:
            assert self.process.poll() is None, "the application ended by itself"
            command = ["search", "--onlyvisible", "--pid", str(self.process.pid), "--name", "Everwarm"]
            self.window_id = self.xdotool(*command, check=False).strip().partition("\n")[0]
            if not self.window_id:
                return False
            # Refused until the window manager has taken the window over.
            self.xdotool("windowactivate", self.window_id, check=False)
            return self.xdotool("getactivewindow", check=False).strip() == self.window_id

        wait_until(is_active, "the window is there")

    def xdotool(self, *arguments: str, check: bool = True) -> str:
        """What it prints; without check also where it fails."""
        command = ["xdotool", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=check, timeout=TIMEOUT_S
        ).stdout

    def type(self, text: str) -> None:
        self.xdotool("type", "--delay", "10", text)

    def press(self, *keys: str) -> None:
        self.xdotool("key", *keys)

    def ask(self, text: str) -> dict[str, Any]:
        """Type, press Enter, and wait for the reply's own account of itself."""
        number = len(self.replies())
        self.type(text)
        self.press("Return")
        wait_until(lambda: len(self.replies()) > number, f"{text!r} is answered")
        return self.replies()[number]

    def replies(self) -> list[dict[str, Any]]:
        if not self.event_log.exists():
            return []
        lines = self.event_log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def messages(self) -> list[tuple[str, str, str]]:
        """(role, content, status) of every message on disk."""
        return self._read("select role, content, status from messages order by id")

    def streaming_text(self) -> str:
        """Of the reply that is being written, as it is on disk; "" where none is."""
        return next((content for _, content, status in self.messages() if status == "streaming"), "")

    def reply_has_begun(self) -> bool:
        """The last message is a reply with words in it, be it still streaming or complete."""
        role, content, _ = self.messages()[-1]
        return role == "assistant" and content != ""

    def drafts(self) -> list[str]:
        """Of all chats, as they are on disk."""
        return [draft for (draft,) in self._read("select draft from conversations order by id")]

    def num_token_ids(self) -> list[int]:
        """Kept with each message, 4 bytes for each."""
        rows = self._read("select length(token_ids) from messages order by id")
        return [(size or 0) // 4 for (size,) in rows]

    def damage(self) -> list[tuple[str]]:
        """What SQLite's own check finds wrong with the chats; for when nothing is running."""
        found = self._read("pragma integrity_check")
        assert found
        return [] if found == [("ok",)] else found

    def _read(self, query: str) -> list[Any]:
        """Of the chats, as another program would; nothing where the first start has not made them yet."""
        try:
            with closing(
                sqlite3.connect(f"file:{self.data / 'chats.sqlite3'}?mode=ro", uri=True)
            ) as database:
                return database.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def log(self) -> str:
        """What this run has logged so far."""
        return self._log_path.read_bytes()[self._logged_before :].decode() if self._log_path.exists() else ""

    def worker(self) -> psutil.Process:
        workers: list[psutil.Process] = []

        def found() -> bool:
            workers[:] = psutil.Process(self.process.pid).children()
            return bool(workers)

        wait_until(found, "there is a worker")
        return workers[0]

    def quit(self) -> None:
        self.press("ctrl+q")
        assert self.process.wait(TIMEOUT_S) == 0

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
