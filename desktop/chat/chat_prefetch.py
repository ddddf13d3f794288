"""Opening a chat brings what the model has read of it into memory, before one has typed anything."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.next_request import next_request
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.error_report import log
from desktop.model_loading import ModelLoading
from inference import EngineClient

PREFETCH_PAUSE_MS = 250
"""Whoever goes through the list quickly prefetches only the chat they stay with."""


class ChatPrefetch(QObject):
    """Only what costs nobody anything: never while a reply runs, never a model that would have to be loaded first.

    A private chat has nothing on disk.
    """

    pause_over = Signal()

    def __init__(
        self,
        open_chat: OpenChat,
        chats: ConversationTasks,
        engine: EngineClient,
        turns: TurnQueue,
        models: ModelLoading,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._open_chat = open_chat
        self._chats = chats
        self._engine = engine
        self._turns = turns
        self._models = models
        self._timer = QTimer(self, singleShot=True, interval=PREFETCH_PAUSE_MS)
        self._timer.timeout.connect(self.pause_over)
        self.pause_over.connect(lambda: background.start(self.prefetch()))
        open_chat.opened.connect(self._soon)
        open_chat.settings_changed.connect(self._soon)
        models.loading_changed.connect(self._soon)
        turns.ended.connect(self._turn_ended)

    def close(self) -> None:
        self._timer.stop()

    async def prefetch(self) -> None:
        if self._open_chat.id is None or not self._is_possible():
            return
        request = await next_request(self._open_chat, self._chats, self._models)
        if request is None or not self._is_possible():
            return
        log.info("prefetch of a chat of %d messages", len(request.messages or ()))
        self._engine.prefetch(request)

    def _is_possible(self) -> bool:
        return not self._open_chat.is_private and not self._turns.replying()

    def _soon(self) -> None:
        self._timer.start()

    def _turn_ended(self, turn: Turn) -> None:
        # The chat that was answered is in memory; another one that was opened meanwhile is not.
        if turn.question.conversation_id != self._open_chat.id:
            self._timer.start()
