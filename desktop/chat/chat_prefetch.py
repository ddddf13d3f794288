"""Opening a chat brings what the model has read of it into memory, before one has typed anything."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.chat_request import chat_request
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn import Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.conversations import ConversationStore, DatabaseUnusable
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
        conversation = self._open_chat.conversation
        if conversation is None or not self._is_possible():
            return
        try:
            branch = await self._chats.run(ConversationStore.branch, conversation.id)
        except DatabaseUnusable:
            return
        path = self._open_chat.model_path
        if not branch or path is None or self._open_chat.id != conversation.id or not self._is_possible():
            return
        log.info("prefetch of a chat of %d messages", len(branch))
        # As it is set now, which may be later than when the branch was asked for.
        conversation = self._open_chat.conversation or conversation
        self._engine.prefetch(
            chat_request(
                conversation,
                branch,
                self._models.config(str(path)),
                default_template=self._open_chat.default_template,
                context=self._open_chat.branch.context,
            )
        )

    def _is_possible(self) -> bool:
        loaded, path = self._engine.model_info, self._open_chat.model_path
        return (
            not self._open_chat.is_private
            and not self._turns.replying()
            and loaded is not None
            and path is not None
            and loaded.config == self._models.config(str(path))
        )

    def _soon(self) -> None:
        self._timer.start()

    def _turn_ended(self, turn: Turn) -> None:
        # The chat that was answered is in memory; another one that was opened meanwhile is not.
        if turn.question.conversation_id != self._open_chat.id:
            self._timer.start()
