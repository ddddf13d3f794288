"""Import and export in the window: which file, how far it is, what came of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QDir, QObject, Qt
from PySide6.QtWidgets import QApplication, QFileDialog

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.open_chat import OpenChat
from desktop.conversation_list.list_actions import ConversationListActions
from desktop.conversations import (
    Conversation,
    ConversationId,
    ConversationStore,
    DatabaseUnusable,
    NoSuchRecord,
)
from desktop.conversations.whole_chats import WholeChat, chat_columns, read_whole_chat
from desktop.exchange import (
    ExchangeError,
    ExportChoice,
    ExportFormat,
    ImportProgress,
    ImportReport,
    IncomingChat,
    add_incoming,
    export_chats,
    import_chats,
    suggested_name,
)
from desktop.import_report import ImportReportWindow
from desktop.main_window import MainWindow
from desktop.notice_bar import NoticeAction, NoticeBar, NoticeKind
from desktop.quantities import format_count

T = TypeVar("T")

NOTICE = "exchange"
BUSY_NOTICE = "exchange busy"
PROGRESS_INTERVAL_S = 0.2
IMPORT_FILTERS = ("Chats (*.json *.jsonl *.zip)", "All files (*)")
EXPORT_CHOICES = {
    "Markdown (*.md)": ExportChoice(ExportFormat.MARKDOWN),
    "Markdown without thoughts (*.md)": ExportChoice(ExportFormat.MARKDOWN, with_reasoning=False),
    "Web page (*.html)": ExportChoice(ExportFormat.HTML),
    "Web page without thoughts (*.html)": ExportChoice(ExportFormat.HTML, with_reasoning=False),
    "JSON with everything (*.json)": ExportChoice(ExportFormat.JSON),
}
_BUSY = "An import or export is still going on. Wait until it is done, or stop it."


@dataclass(slots=True)
class _Job:
    """What the thread at work and the window tell each other; each field has one writer."""

    verb: str
    is_stopped: threading.Event
    num_chats: int = 0
    num_all: int | None = None

    def text(self) -> str:
        of = "" if self.num_all is None else f" of {format_count(self.num_all)}"
        return f"{self.verb} chats: {format_count(self.num_chats)}{of}"


class ChatExchange(QObject):
    """One import or export at a time, on a thread of its own; only the database's work is done on the database's."""

    def __init__(
        self,
        window: MainWindow,
        chats: ConversationTasks,
        open_chat: OpenChat,
        list_actions: ConversationListActions,
        notices: NoticeBar,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._window = window
        self._chats = chats
        self._open_chat = open_chat
        self._list_actions = list_actions
        self._notices = notices
        self._background = background
        self._job: _Job | None = None
        window.import_requested.connect(self.ask_for_files)
        window.import_folder_requested.connect(self.ask_for_folder)
        window.export_chat_requested.connect(lambda: background.start(self._ask_to_export_chat()))
        window.export_all_requested.connect(lambda: background.start(self._ask_to_export_all()))

    def ask_for_files(self) -> None:
        dialog = self._dialog("Import chats")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters(IMPORT_FILTERS)
        dialog.filesSelected.connect(self._start_import)
        dialog.open()

    def ask_for_folder(self) -> None:
        dialog = self._dialog("Import a folder of chats")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.filesSelected.connect(self._start_import)
        dialog.open()

    async def import_files(self, paths: Sequence[Path]) -> ImportReport | None:
        """None: something else is under way, or the chats cannot be read."""
        if self._job is not None:
            self._notices.show_notice(BUSY_NOTICE, _BUSY)
            return None
        try:
            columns = await self._chats.run(chat_columns)
        except DatabaseUnusable as error:
            self._notices.show_notice(NOTICE, str(error), kind="error")
            return None
        loop = asyncio.get_running_loop()

        def work(job: _Job) -> ImportReport:
            def add(chat: IncomingChat) -> ConversationId | None:
                return self._wait(loop, lambda store: add_incoming(store, chat))

            def progressed(progress: ImportProgress) -> None:
                job.num_chats = progress.num_chats

            return import_chats(paths, columns, add, progressed, job.is_stopped.is_set)

        report = await self._run(_Job("Importing", threading.Event()), work)
        if report.num_imported:
            # What came in may be pinned.
            self._list_actions.pins_changed.emit()
            await self._list_actions.reload()
        self._show_report(report)
        return report

    async def export(self, conversations: Sequence[Conversation], target: Path, choice: ExportChoice) -> None:
        if self._job is not None:
            self._notices.show_notice(BUSY_NOTICE, _BUSY)
            return
        loop = asyncio.get_running_loop()

        def work(job: _Job) -> int | None:
            def read() -> Iterator[WholeChat]:
                for conversation in conversations:
                    job.num_chats += 1
                    try:
                        chat = self._wait(loop, partial(_read, conversation.id))
                    except NoSuchRecord:  # deleted for good since it was listed
                        continue
                    yield chat

            titles = [conversation.title for conversation in conversations]
            return export_chats(read(), titles, target, choice, job.is_stopped.is_set)

        job = _Job("Exporting", threading.Event(), num_all=len(conversations))
        try:
            num_chats = await self._run(job, work)
        except (ExchangeError, DatabaseUnusable) as error:
            self._notices.show_notice(NOTICE, str(error), kind="error")
            return
        if num_chats is None:
            self._notices.show_notice(NOTICE, f"The export was stopped; {target.name} was not written.")
            return
        what = "the chat" if num_chats == 1 else f"{format_count(num_chats)} chats"
        num_private = sum(conversation.is_private for conversation in conversations)
        private = f" {format_count(num_private)} of them private." if num_private and num_chats > 1 else ""
        self._notices.show_notice(NOTICE, f"Exported {what} to {target}.{private}")

    async def _run(self, job: _Job, work: Callable[[_Job], T]) -> T:
        """With progress and a way to stop it in the notice bar. Quitting stops it between two chats."""
        self._job = job
        self._notices.show_notice(NOTICE, job.text(), action=NoticeAction("Stop", job.is_stopped.set))
        task = asyncio.ensure_future(asyncio.to_thread(work, job))
        try:
            while not (await asyncio.wait({task}, timeout=PROGRESS_INTERVAL_S))[0]:
                if (line := self._notices.line(NOTICE)) is not None:
                    line.label.setText(job.text())
            return task.result()
        finally:
            job.is_stopped.set()
            # The thread may be waiting for the database, which is still there.
            await asyncio.wait({task})
            self._job = None
            for key in (NOTICE, BUSY_NOTICE):
                self._notices.dismiss(key)

    def _wait(self, loop: asyncio.AbstractEventLoop, action: Callable[[ConversationStore], T]) -> T:
        """On the thread at work: what the database's thread makes of it."""
        return asyncio.run_coroutine_threadsafe(self._chats.run(action), loop).result()

    def _show_report(self, report: ImportReport) -> None:
        def show() -> None:
            ImportReportWindow(report, self._window).show()

        action = NoticeAction("Details…", show) if report.entries else None
        kind: NoticeKind = "info" if report.is_success else "error"
        self._notices.show_notice(NOTICE, report.summary(), kind=kind, action=action)

    def _start_import(self, paths: Sequence[str]) -> None:
        self._background.start(self.import_files([Path(path) for path in paths]))

    async def _ask_to_export_chat(self) -> None:
        conversation_id = self._open_chat.id
        if conversation_id is None:
            self._notices.show_notice(NOTICE, "There is no chat to export yet: this one is still empty.")
            return
        await self._save_open_chat()
        try:
            conversation = await self._chats.run(ConversationStore.conversation, conversation_id)
        except (DatabaseUnusable, NoSuchRecord) as error:
            self._notices.show_notice(NOTICE, str(error), kind="error")
            return
        self._ask_for_target("Export this chat", conversation.title, [conversation])

    async def _save_open_chat(self) -> None:
        """What is typed and set belongs to it."""
        await self._open_chat.save_draft()
        await self._open_chat.save_settings()

    async def _ask_to_export_all(self) -> None:
        await self._save_open_chat()
        try:
            conversations = await self._chats.run(ConversationStore.conversations)
        except DatabaseUnusable as error:
            self._notices.show_notice(NOTICE, str(error), kind="error")
            return
        if not conversations:
            self._notices.show_notice(NOTICE, "There are no chats to export yet.")
            return
        self._ask_for_target("Export all chats", "Everwarm chats", conversations)

    def _ask_for_target(self, title: str, name: str, conversations: Sequence[Conversation]) -> None:
        dialog = self._dialog(title)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setFileMode(QFileDialog.FileMode.AnyFile)
        dialog.setNameFilters(list(EXPORT_CHOICES))
        dialog.setDefaultSuffix(ExportFormat.MARKDOWN.value)
        dialog.filterSelected.connect(
            lambda chosen: dialog.setDefaultSuffix(EXPORT_CHOICES[chosen].format.value)
        )
        dialog.selectFile(suggested_name(name, ExportFormat.MARKDOWN).removesuffix(".md"))

        def chosen(path: str) -> None:
            choice = _choice(Path(path), EXPORT_CHOICES[dialog.selectedNameFilter()])
            self._background.start(self.export(conversations, Path(path), choice))

        dialog.fileSelected.connect(chosen)
        dialog.open()

    def _dialog(self, title: str) -> QFileDialog:
        dialog = QFileDialog(self._window, title, QDir.homePath())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        # A native dialog cannot be driven by tests and does not exist on the platforms that have no screen.
        native = QApplication.platformName() not in ("offscreen", "minimal")
        dialog.setOption(QFileDialog.Option.DontUseNativeDialog, not native)
        return dialog


def _read(conversation_id: ConversationId, store: ConversationStore) -> WholeChat:
    return read_whole_chat(store, conversation_id)


def _choice(path: Path, choice: ExportChoice) -> ExportChoice:
    """What the name one typed ends in says more than the filter one may have overlooked."""
    try:
        format = ExportFormat(path.suffix.lower().removeprefix("."))
    except ValueError:
        return choice
    return ExportChoice(format, choice.with_reasoning)
