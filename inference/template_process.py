"""Chat templates run in a small process of their own, which is killed when one takes too long or too much memory."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import psutil

_CHILD = Path(__file__).with_name("template_child.py")
# Templates take about a millisecond; starting the process is waited for apart, since a busy computer may be slow at it.
RENDER_TIMEOUT_S = 3.0
# Some templates look back at every message from every message (Gemma 4: 3 ms each in a chat of 800).
_TIMEOUT_S_PER_MESSAGE = 0.01
_START_TIMEOUT_S = 30.0
MAX_PROMPT_CHARS = 16 * 2**20
# Of the whole process; the interpreter takes a tenth of it.
MAX_MEMORY_BYTES = 2**30
_MEMORY_POLL_S = 0.05

RefusalKind = Literal["syntax", "render", "memory", "size", "time", "process"]


class TemplateRefused(Exception):
    """What a template did instead of writing a prompt; `str()` is the reason without its subject, for a sentence."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Rendered:
    """text, or why there is none."""

    text: str | None
    refusal: TemplateRefused | None = None

    def text_or_raise(self) -> str:
        """Raises TemplateRefused."""
        if self.text is None:
            raise self.refusal or TemplateRefused("render", "wrote nothing")
        return self.text


class TemplateProcess:
    """Started when first needed or by warm_up(), kept, and replaced after it had to be killed. Any thread may call; the
    process ends with the thread that made it start (Linux)."""

    def __init__(self, render_timeout_s: float = RENDER_TIMEOUT_S, max_chars: int = MAX_PROMPT_CHARS) -> None:
        self._timeout_s, self._max_chars = render_timeout_s, max_chars
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def warm_up(self) -> None:
        """Start the process without waiting for it."""
        # What hinders it from starting is told by the first render.
        with self._lock, contextlib.suppress(TemplateRefused):
            self._start()

    def render(
        self, source: str, renders: Sequence[Mapping[str, Any]], now: float | None = None
    ) -> list[Rendered]:
        """The template's texts for each set of variables. now: what strftime_now tells, Unix time in seconds.

        Raises TemplateRefused (time, memory, process); what a template refuses itself stands in the results.
        """
        request = {"source": source, "renders": renders, "now": now, "max_chars": self._max_chars}
        num_messages = sum(len(variables.get("messages", ())) for variables in renders)
        timeout_s = self._timeout_s + num_messages * _TIMEOUT_S_PER_MESSAGE
        return [_rendered(result) for result in self._ask(request, timeout_s)["results"]]

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            is_new = self._running is None
            try:
                return self._ask_once(line, timeout_s)
            except TemplateRefused as refusal:
                # One that was kept may have been on its way out, by nobody's fault who is here.
                if is_new or refusal.kind != "process":
                    raise
                return self._ask_once(line, timeout_s)

    def variables(self, source: str) -> dict[str, list[str]]:
        """What the template reads of what it is given, with the texts it compares each with or sets it to. Raises TemplateRefused."""
        answer = self._ask({"source": source, "renders": [], "now": None, "max_chars": 0}, self._timeout_s)
        if answer["results"]:
            _rendered(answer["results"][0]).text_or_raise()
        return cast(dict[str, list[str]], answer["variables"])

    def _ask_once(self, line: bytes, timeout_s: float) -> dict[str, Any]:
        """Raises TemplateRefused; the process is then ended."""
        running = self._start()
        try:
            running.wait_until_ready()
            return running.ask(line, timeout_s)
        except TemplateRefused:
            self._end()
            raise

    @property
    def pid(self) -> int | None:
        """None: not running."""
        return None if self._running is None else self._running.process.pid

    def close(self) -> None:
        with self._lock:
            self._end()

    def _start(self) -> _Running:
        if self._running is not None and self._running.process.poll() is not None:
            self._end()
        if self._running is None:
            self._running = _Running()
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running = None


class _Running:
    """One child. A thread reads its answers, so that waiting for one can end."""

    def __init__(self) -> None:
        """Raises TemplateRefused."""
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD), str(MAX_MEMORY_BYTES), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise TemplateRefused("process", f"could not be run ({error})") from error
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._is_ready = False
        threading.Thread(target=self._read_answers, name="chat template", daemon=True).start()

    def _read_answers(self) -> None:
        stream = cast(BinaryIO, self.process.stdout)
        for line in stream:
            self._answers.put(line)
        # Whoever waits is told that nothing more comes.
        self._answers.put(b"")

    def wait_until_ready(self) -> None:
        """Raises TemplateRefused."""
        if not self._is_ready:
            self._next_answer(_START_TIMEOUT_S)
            self._is_ready = True

    def ask(self, line: bytes, timeout_s: float) -> dict[str, Any]:
        """Raises TemplateRefused."""
        stdin = cast(BinaryIO, self.process.stdin)
        try:
            stdin.write(line)
            stdin.flush()
        except OSError as error:
            raise TemplateRefused("process", f"could not be run ({error})") from error
        return self._next_answer(timeout_s)

    def _next_answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                line = self._answers.get(timeout=min(left_s, _MEMORY_POLL_S))
            except queue.Empty:
                self._check_memory()
                continue
            if not line:
                raise TemplateRefused("process", "ended the process that runs it")
            return cast(dict[str, Any], json.loads(line))
        raise TemplateRefused("time", f"did not finish within {timeout_s:g} seconds and was stopped")

    def _check_memory(self) -> None:
        """For systems that bound no process's memory by themselves."""
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self.process.pid).memory_info().rss > MAX_MEMORY_BYTES:
                raise _out_of_memory()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            cast(BinaryIO, self.process.stdin).close()


@functools.cache
def shared_template_process() -> TemplateProcess:
    """One for all models of this process. It ends when this process does, however that happens."""
    process = TemplateProcess()
    atexit.register(process.close)
    return process


def _rendered(result: Mapping[str, str]) -> Rendered:
    if "text" in result:
        return Rendered(result["text"])
    kind = cast(RefusalKind, result["kind"])
    match kind:
        case "memory":
            return Rendered(None, _out_of_memory())
        case "size":
            return Rendered(None, TemplateRefused(kind, "writes without end and was stopped"))
        case "syntax":
            return Rendered(None, TemplateRefused(kind, f"cannot be read ({result['error']})"))
        case _:
            return Rendered(None, TemplateRefused(kind, f"failed on this chat ({result['error']})"))


def _out_of_memory() -> TemplateRefused:
    gigabytes = MAX_MEMORY_BYTES / 2**30
    return TemplateRefused("memory", f"wanted more than {gigabytes:g} GB of memory and was stopped")
