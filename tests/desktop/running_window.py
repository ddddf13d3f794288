"""The whole window on a real data folder, with a scripted engine in place of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QWidget

from desktop.chat.transcript_message import TranscriptMessage
from desktop.conversation_list.list_model import ConversationRole
from desktop.conversations import ConversationStore, StoredMessage
from desktop.error_report import ErrorReport
from desktop.everwarm import Everwarm
from desktop.garbage_collection import MainThreadGarbageCollection
from desktop.paths import DataPaths
from inference import EngineEvent, SamplingParams
from tests.desktop.scripted_engine import ScriptedEngine


class RunningWindow:
    """Everwarm as one uses it: with keys, and by what can be read on it."""

    everwarm: Everwarm

    def __init__(self, data_folder: Path, starter_model: Path | None) -> None:
        self.engine = ScriptedEngine()
        self.faults: list[str] = []
        self.paths = DataPaths(data_folder)
        self._starter_model = starter_model

    async def __aenter__(self) -> RunningWindow:
        """Start, up to where the last chat is shown. All of a test runs in one go: the loop is Qt's own,
        and what a slot starts while no coroutine runs would find no running loop."""
        self.build()
        await self.everwarm.start()
        return self

    def build(self) -> None:
        """Everything up to the start."""
        self._garbage_collection = MainThreadGarbageCollection()
        self._garbage_collection.start()
        self.paths.prepare()
        self._hooks = sys.excepthook, threading.excepthook
        report = ErrorReport(self.paths.logs / "window.log")
        report.told.connect(self.faults.append)
        report.install(asyncio.get_running_loop())
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        self.everwarm = Everwarm(
            app, self.paths, self._connect_engine, report, find_starter=lambda: self._starter_model
        )

    async def __aexit__(self, *_error: object) -> None:
        await self.quit()
        self.everwarm.window.deleteLater()
        self._garbage_collection.stop()
        sys.excepthook, threading.excepthook = self._hooks

    def _connect_engine(self, on_event: Callable[[EngineEvent], None]) -> ScriptedEngine:
        self.engine.connect(on_event)
        return self.engine

    async def quit(self) -> None:
        await self.everwarm.quit()
        await self.everwarm.closed.wait()
        assert self.faults == [], self.faults

    def type(self, text: str) -> None:
        QTest.keyClicks(self.input, text)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        QTest.keyClick(self.input, key, modifier)

    async def send(self, text: str) -> None:
        """Type, Enter, and wait until the message is on disk and in the transcript."""
        before = len(self.rows)
        self.type(text)
        self.press(Qt.Key.Key_Return)
        await until(lambda: len(self.rows) > before)

    async def ask(self, text: str) -> None:
        """Send and wait until nothing is being answered any more."""
        before = len(self.rows)
        await self.send(text)
        await until(lambda: len(self.rows) == before + 2)
        await self.idle()

    async def idle(self) -> None:
        await until(lambda: not self.everwarm.turns.replying())

    @property
    def input(self) -> QWidget:
        widget = self.everwarm.panel.composer.focusProxy()
        assert widget is not None
        return widget

    def act(self, action: str) -> None:
        """Press one of the buttons under the last message."""
        row = self.rows[-1]
        assert action in {offered for offered, _ in row.actions}
        self.everwarm.panel.transcript.action_triggered.emit(row.key, action)

    def notice(self, key: str) -> str:
        return self.everwarm.notices.text(key)

    @property
    def note(self) -> str:
        return self.everwarm.panel.composer.findChild(QLabel).text()

    @property
    def replying_titles(self) -> list[str]:
        model = self.everwarm.list_model
        indexes = [model.index(row) for row in range(model.rowCount())]
        return [str(index.data()) for index in indexes if index.data(ConversationRole.REPLYING)]

    async def stored_branch(self) -> list[StoredMessage]:
        """The open chat as it is on disk, read by another connection."""
        conversation = self.everwarm.open_chat.conversation
        assert conversation is not None
        with contextlib.closing(ConversationStore.open(self.paths.database)) as store:
            return store.branch(conversation.id)

    async def leave_reply_streaming(self, text: str) -> None:
        """Quit, and leave on disk what a kill in the middle of the next reply would."""
        await self.quit()
        conversation = self.everwarm.open_chat.conversation
        assert conversation is not None
        with contextlib.closing(ConversationStore.open(self.paths.database)) as store:
            head = store.branch(conversation.id)[-1]
            question = store.add_user_message(conversation.id, "More", head.id)
            begun = store.begin_reply(conversation.id, question.id, head.model_path or "", SamplingParams())
            store.save_reply(begun.id, text, None)

    @property
    def rows(self) -> list[TranscriptMessage]:
        return [shown.message for shown in self.everwarm.panel.transcript.shown_messages()]

    @property
    def texts(self) -> list[str]:
        """What is really laid out, markdown and all, streamed text included."""
        transcript = self.everwarm.panel.transcript
        return [transcript.message_text_on_screen(row.key) for row in self.rows]

    @property
    def draft(self) -> str:
        return self.everwarm.panel.composer.text()

    @property
    def titles(self) -> list[str]:
        return [str(index.data()) for index in self.chat_indexes]

    @property
    def chat_indexes(self) -> list[QModelIndex]:
        """Of the chats in the list, from the top down; without headings."""
        model = self.everwarm.list_model
        indexes = [model.index(row) for row in range(model.rowCount())]
        return [index for index in indexes if index.data(ConversationRole.HEADING) is None]

    @property
    def list_rows(self) -> list[str]:
        """The whole list: headings as "— Today", with how many chats where they fold, and chats."""
        model = self.everwarm.list_model
        rows = []
        for row in range(model.rowCount()):
            heading = model.heading(row)
            count = f" ({heading.count})" if heading is not None and heading.folds else ""
            rows.append(("— " if heading is not None else "") + str(model.index(row).data()) + count)
        return rows


async def until(holds: Callable[[], bool], give_up_s: float = 120) -> None:
    """give_up_s: so that a test that cannot succeed ends; no measure of speed."""
    async with asyncio.timeout(give_up_s):
        while not holds():  # noqa: ASYNC110 - what tests wait for has no event of its own
            await asyncio.sleep(0.005)
