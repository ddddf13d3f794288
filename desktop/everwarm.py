"""Everything of the running application, built and wired: from the first paint to the last save."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QByteArray, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication, QFileDialog

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.chat_panel import ChatPanel
from desktop.chat.chat_prefetch import ChatPrefetch
from desktop.chat.context_count import ContextCount
from desktop.chat.draft_reading import DraftReading
from desktop.chat.full_context import FullContext
from desktop.chat.open_chat import OpenChat
from desktop.chat.title_writing import TitleWriting
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.chat_exchange import ChatExchange
from desktop.chat_settings.settings_editing import ChatSettingsEditing
from desktop.chat_settings.settings_panel import ChatSettingsPanel
from desktop.conversation_list.list_side import ConversationListSide
from desktop.conversations import LOCK_TIMEOUT_S, ConversationId, ConversationStore, NotSaved
from desktop.engine_faults import STOP, EngineFaults
from desktop.error_report import ErrorReport
from desktop.forgotten_owners import ForgottenOwners
from desktop.gauges.gauge_strip import GaugeStrip
from desktop.held_loads import HeldLoads
from desktop.main_window import MainWindow
from desktop.model_loading import ModelLoading
from desktop.model_picker import ModelPicker
from desktop.notice_bar import NoticeAction, NoticeBar
from desktop.paths import DataPaths
from desktop.pinned_chats import PinnedChats
from desktop.reply_log import ReplyLog
from desktop.settings import Theme, load_settings
from desktop.starter_model import find_starter_model
from desktop.theme import apply_theme
from desktop.wording import as_sentence
from inference import EngineClient, EngineEvent, LoadMarks, PhaseChanged, RequestId, StoreNotice

FIRST_PAINT_TIMEOUT_S = 2.0
ENGINE_CLOSE_S = 0.3
# Another process may hold the database; whoever quits does not wait for it as a message would.
QUIT_LOCK_TIMEOUT_S = 0.05
UNSAVED_TEXT = (
    "The text in the box below could not be saved, so Everwarm stays open. Free some disk space and quit again; "
    "quitting again without that discards the text."
)

CreateEngine = Callable[[Callable[[EngineEvent], None]], EngineClient]


class Everwarm(QObject):
    """Made and used on the event loop's thread. start() shows the window; `closed` is set when all is saved."""

    def __init__(
        self,
        app: QApplication,
        paths: DataPaths,
        create_engine: CreateEngine,
        report: ErrorReport,
        find_starter: Callable[[], Path | None] = find_starter_model,
    ) -> None:
        super().__init__()
        self.closed = asyncio.Event()
        self._app = app
        self.paths = paths
        self._quitting = False
        self._may_lose_text = False
        self._painted = asyncio.Event()
        self._started = asyncio.Event()
        loaded = load_settings(paths.settings)
        self.background = BackgroundTasks(report.report)
        self.settings = SettingsWriter(paths.settings, loaded.settings, self.background)
        self.chats = ConversationTasks(lambda: ConversationStore.open(paths.database))
        self.engine = create_engine(self._take_engine_event)
        self.held = HeldLoads(self.engine, LoadMarks(paths.load_marks).read())
        self.turns = TurnQueue(self.chats, self.held, self.background, ReplyLog.from_environment())
        self.models = ModelLoading(self.engine, self.settings, find_starter, self.held)

        self.notices = NoticeBar()
        self.faults = EngineFaults(
            self.engine, self.models, self.settings, self.notices, self.background, self._ask_for_model
        )
        self.gauges = GaugeStrip()
        self.picker = ModelPicker(self.models.choices)
        self.panel = ChatPanel(self.picker)
        self.open_chat = OpenChat(
            self.panel, self.chats, self.turns, self.models, self.settings, self.background
        )
        self.prefetch = ChatPrefetch(
            self.open_chat, self.chats, self.engine, self.turns, self.models, self.background
        )
        self.draft_reading = DraftReading(
            self.open_chat,
            self.panel.composer,
            self.chats,
            self.engine,
            self.turns,
            self.models,
            self.settings,
            self.background,
        )
        self.full_context = FullContext(
            self.open_chat,
            self.panel.transcript,
            self.panel.composer,
            self.chats,
            self.turns,
            self.models,
            self.settings,
            self.background,
        )
        self.context_count = ContextCount(
            self.open_chat,
            self.panel.composer,
            self.full_context,
            self.chats,
            self.engine,
            self.turns,
            self.models,
            self.background,
        )
        self.titles = TitleWriting(
            self.open_chat,
            self.panel.composer,
            self.chats,
            self.engine,
            self.turns,
            self.models,
            self.settings,
            self.background,
        )
        self.forgotten = ForgottenOwners(self.chats, self.engine)
        self.pinned = PinnedChats(self.chats, self.engine)
        self.list_side = ConversationListSide(
            self.panel, self.open_chat, self.chats, self.turns, self.notices, self.background
        )
        self.list_model, self.list_view = self.list_side.model, self.list_side.view
        self.list_actions, self.list_panel = self.list_side.actions, self.list_side.panel
        self.window = MainWindow(
            self.list_panel, self.list_side.menu.actions, self.panel, self.gauges, self.notices
        )
        self.exchange = ChatExchange(
            self.window, self.chats, self.open_chat, self.list_actions, self.notices, self.background
        )
        self._connect()
        report.told.connect(lambda text: self.notices.show_notice("fault", text, kind="error"))
        for problem in loaded.problems:
            self.notices.show_notice(f"settings: {problem}", problem)

    async def start(self) -> None:
        """Paint first, then chats, then the model. Raises DatabaseUnusable."""
        try:
            await self._start()
        finally:
            self._started.set()

    async def _start(self) -> None:
        settings = self.settings.settings
        self._show_theme(settings.theme)
        self.panel.transcript.set_font_scale(settings.text_scale)
        if settings.window_geometry is not None:
            self.window.restoreGeometry(QByteArray(settings.window_geometry))
        self.window.painted_first.connect(self._painted.set)
        self.panel.composer.setFocus()
        self.window.show()
        # A window that starts minimised is never painted.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._painted.wait(), FIRST_PAINT_TIMEOUT_S)
        self._add_chat_settings()
        await self.chats.open()
        try:
            await self.chats.run(ConversationStore.mark_interrupted)
        except NotSaved as error:
            self._show_not_saved(str(error))
        await self.list_actions.purge_deleted()
        last = settings.last_conversation_id
        await self.open_chat.open(None if last is None else ConversationId(last), keep_typed=True)
        await self.list_actions.reload()
        self.background.start(self._load_first_model())

    async def quit(self) -> None:
        """The window goes at once; what is unsaved follows. Calling it again changes nothing."""
        if self._quitting:
            return
        self._quitting = True
        if self.open_chat.ready.is_set() and not self._may_lose_text:
            await self.chats.run(ConversationStore.set_lock_timeout, QUIT_LOCK_TIMEOUT_S)
            if not await self.open_chat.save_draft():
                self._keep_window()
                return
        geometry = self.window.saveGeometry().data()
        self.window.hide()
        self._painted.set()
        await self._started.wait()
        self.forgotten.close()
        # The engine is told first, so that it is idle while the rest is written.
        engine_closed = asyncio.ensure_future(self.engine.close(ENGINE_CLOSE_S))
        await self.turns.interrupt_all()
        if self.open_chat.ready.is_set():
            await self.open_chat.save_settings()
            await self.open_chat.save_draft()
        self.settings.settings = replace(
            self.settings.settings, window_geometry=bytes(geometry), last_conversation_id=self.open_chat.id
        )
        await self.settings.save()
        await self.background.cancel()
        # No timer may start anything once the loop is gone.
        self.list_side.close()
        self.open_chat.close()
        self.prefetch.close()
        self.draft_reading.close()
        self.context_count.close()
        self.titles.close()
        self.panel.find_bar.close_bar()
        await asyncio.gather(engine_closed, self.chats.close())
        self.closed.set()

    def _keep_window(self) -> None:
        """Text that was typed could not be saved: quitting would lose it."""
        self._quitting = False
        self._may_lose_text = True
        self.background.start(self.chats.run(ConversationStore.set_lock_timeout, LOCK_TIMEOUT_S))
        self.notices.show_notice("quit", UNSAVED_TEXT, kind="error")

    def _connect(self) -> None:
        window, open_chat = self.window, self.open_chat
        window.new_private_chat_requested.connect(self.list_actions.new_private_chat)
        window.new_private_chat_requested.connect(self.panel.composer.setFocus)
        self.list_actions.purged.connect(lambda: self.background.start(self.forgotten.tell()))
        self.list_actions.pins_changed.connect(lambda: self.background.start(self.pinned.tell()))
        window.quit_requested.connect(lambda: self.background.start(self.quit()))
        window.open_model_requested.connect(self._ask_for_model)
        window.rename_requested.connect(self.list_view.rename_current)
        window.delete_requested.connect(self.list_actions.delete_current)
        window.undo_requested.connect(self.list_actions.undo)
        window.stop_requested.connect(open_chat.stop)
        window.search_requested.connect(self.list_side.search.start)
        window.theme_chosen.connect(self._choose_theme)
        self.list_actions.undo_available.connect(window.set_undo_available)
        self.picker.model_chosen.connect(self._choose_model)
        self.picker.open_requested.connect(self._ask_for_model)
        self.panel.transcript.font_scale_changed.connect(self._keep_text_scale)
        self.models.failed.connect(self._show_model_trouble)
        open_chat.opened.connect(self._chat_opened)
        open_chat.listing_changed.connect(self._remember_chat)
        open_chat.find_model_requested.connect(self._ask_for_model)
        open_chat.choose_model_requested.connect(self._offer_models)
        open_chat.told.connect(lambda text: self.notices.show_notice("told", text, kind="error"))
        self.turns.begun.connect(lambda _: self.notices.dismiss("told"))
        self.turns.ended.connect(self._forget_former_trouble)
        self.turns.ended.connect(lambda _: self.notices.dismiss(STOP))
        open_chat.branch.reported.connect(self.gauges.show_event)
        for writer in (open_chat, self.turns):
            writer.not_saved.connect(self._show_not_saved)
            writer.saved.connect(lambda: self.notices.dismiss("not saved"))
        self.full_context.not_saved.connect(self._show_not_saved)
        self.list_actions.not_saved.connect(self._show_not_saved)
        self.settings.not_saved.connect(lambda text: self.notices.show_notice("settings", text, kind="error"))

    def _forget_former_trouble(self, turn: Turn) -> None:
        self.notices.dismiss("told")
        if turn.finished is not None and turn.question.model.path == str(self.open_chat.model_path):
            # Whatever was wrong with another file, this chat has a model that answers.
            self.notices.dismiss("model")

    def _take_engine_event(self, event: EngineEvent) -> None:
        self.gauges.show_event(event)
        self.faults.take_event(event)
        if isinstance(event, StoreNotice):
            self.notices.show_notice("store", as_sentence(event.message))

    async def _load_first_model(self) -> None:
        await self.pinned.tell()
        told = await self.forgotten.tell()
        path = self.open_chat.model_path
        if self._quitting or path is None or not path.is_file():
            return
        if self.held.holds(config := self.models.config(str(path))):
            self.faults.offer(config)
            return
        if await self.models.load(path):
            await self.forgotten.confirm(told)

    async def _load_chosen(self, path: Path) -> None:
        if self.turns.replying() and path != self.open_chat.model_path:
            text = f"{path.stem} is loaded as soon as the replies that are being written have ended."
            self.notices.show_notice("model waits", text)
        is_loaded = await self.models.load(path)
        self.notices.dismiss("model waits")
        if is_loaded:
            self.notices.dismiss("model")
            await self.open_chat.set_model(path)

    def _choose_model(self, path: Path) -> None:
        self.background.start(self._load_chosen(path))

    def _ask_for_model(self) -> None:
        dialog = QFileDialog(self.window, "Open a model")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["Models (*.gguf)", "All files (*)"])
        # A native dialog cannot be driven by tests and does not exist on the platforms that have no screen.
        native = self._app.platformName() not in ("offscreen", "minimal")
        dialog.setOption(QFileDialog.Option.DontUseNativeDialog, not native)
        known = self.open_chat.model_path
        if known is not None and known.parent.is_dir():
            dialog.setDirectory(str(known.parent))
        dialog.fileSelected.connect(lambda path: self._choose_model(Path(path)))
        # What is typed next is a message.
        dialog.finished.connect(lambda _: QTimer.singleShot(0, self.panel.composer.setFocus))
        dialog.open()

    def _offer_models(self) -> None:
        if self.models.choices():
            self.picker.showMenu()
        else:
            self._ask_for_model()

    def _chat_opened(self, _conversation_id: object) -> None:
        self._remember_chat()
        self.gauges.forget_reply()
        for turn in self.turns.turns_of(self.open_chat.id):
            if turn.answering:
                self.gauges.show_event(PhaseChanged(RequestId(""), turn.phase))
                break
        path = self.open_chat.model_path
        if path is None:
            label, text = "Open GGUF…", "There is no model yet. Open one (a GGUF file) and start to chat."
        elif not path.is_file():
            label = "Find it…"
            text = f"The model of this chat, {path.name}, is no longer in {path.parent}. The chat can be read; to go on, find the file or choose another model."
        else:
            self.notices.dismiss("model")
            return
        self.notices.show_notice("model", text, action=NoticeAction(label, self._ask_for_model))

    def _remember_chat(self) -> None:
        # Now, not when one quits: a process that is killed reopens the same chat.
        opened = self.open_chat.id
        if opened is not None and opened != self.settings.settings.last_conversation_id:
            self.settings.change(lambda settings: replace(settings, last_conversation_id=opened))

    def _show_model_trouble(self, text: str) -> None:
        self.notices.show_notice(
            "model", text, kind="error", action=NoticeAction("Open GGUF…", self._ask_for_model)
        )

    def _show_not_saved(self, text: str) -> None:
        self.notices.show_notice("not saved", text, kind="error")

    def _add_chat_settings(self) -> None:
        """Its many fields take some time to make, so that the window is there first."""
        self.settings_panel = ChatSettingsPanel()
        self.settings_editing = ChatSettingsEditing(
            self.settings_panel, self.open_chat, self.engine, self.models, self.settings, self.background
        )
        self.window.add_side_panel(self.settings_panel)
        self.window.chat_settings_requested.connect(self._toggle_chat_settings)
        self.panel.settings_button.clicked.connect(self._toggle_chat_settings)
        self.settings_panel.close_requested.connect(self._toggle_chat_settings)
        self.settings_editing.format_trouble.connect(self._show_format_trouble)
        self.open_chat.choose_template_requested.connect(self._choose_format)

    def _toggle_chat_settings(self) -> None:
        is_open = self.settings_panel.isHidden()
        self.settings_panel.setVisible(is_open)
        (self.settings_panel.system_prompt.editor if is_open else self.panel.composer).setFocus()

    def _choose_format(self) -> None:
        self.settings_panel.show()
        self.settings_panel.show_format()

    def _show_format_trouble(self, text: str) -> None:
        if not text:
            self.notices.dismiss("format")
        else:
            self.notices.show_notice(
                "format", text, action=NoticeAction("Choose a format", self._choose_format)
            )

    def _choose_theme(self, choice: Theme) -> None:
        self._show_theme(choice)
        self.settings.change(lambda settings: replace(settings, theme=choice))

    def _keep_text_scale(self, scale: float) -> None:
        self.settings.change(lambda settings: replace(settings, text_scale=scale))

    def _show_theme(self, choice: Theme) -> None:
        apply_theme(self._app, choice)
        self.window.show_theme(choice)
