"""What was done to the list and can be taken back for a few seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.conversations import NoSuchRecord, NotSaved
from desktop.notice_bar import NoticeAction, NoticeBar

UNDO_NOTICE = "deleted"


@dataclass(frozen=True, slots=True)
class UndoStep:
    """words: what was done, as "Deleted 3 chats". take_back raises NotSaved or NoSuchRecord."""

    words: str
    take_back: Callable[[], Awaitable[None]]


class ListUndo(QObject):
    """The step done last is taken back first; all are forgotten together, so many ms after the last one."""

    available = Signal(bool)
    forgotten = Signal()
    not_saved = Signal(str)

    def __init__(self, notices: NoticeBar, background: BackgroundTasks, undo_ms: int) -> None:
        super().__init__()
        self._notices = notices
        self._background = background
        self._steps: list[UndoStep] = []
        self._timer = QTimer(self, singleShot=True, interval=undo_ms)
        self._timer.timeout.connect(self._forget)

    def add(self, step: UndoStep) -> None:
        self._steps.append(step)
        self._notices.show_notice(
            UNDO_NOTICE, step.words, action=NoticeAction("Undo (Ctrl+Z)", self.take_back)
        )
        self._timer.start()
        self.available.emit(True)

    def take_back(self) -> None:
        if self._steps:
            self._background.start(self._take_back(self._steps.pop()))

    def close(self) -> None:
        self._timer.stop()

    async def _take_back(self, step: UndoStep) -> None:
        try:
            await step.take_back()
        except NotSaved as error:
            self._steps.append(step)
            self.not_saved.emit(str(error))
            return
        except NoSuchRecord:
            pass  # purged meanwhile, by another window say
        if not self._steps:
            self._end()

    def _forget(self) -> None:
        self._steps.clear()
        self._end()
        self.forgotten.emit()

    def _end(self) -> None:
        self._timer.stop()
        self._notices.dismiss(UNDO_NOTICE)
        self.available.emit(False)
