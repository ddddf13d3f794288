"""Counts what the chat with its draft takes of the context, while one types."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat.composer import Composer
from desktop.chat.full_context import FullContext
from desktop.chat.next_request import next_request
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn_queue import TurnQueue
from desktop.model_loading import ModelLoading
from inference import ContextFit, EngineClient, EngineError

COUNT_PAUSE_MS = 250
"""How often at most is counted while somebody types."""


class ContextCount(QObject):
    """Asks the engine, which counts exactly what it would read. Never loads a model for it."""

    pause_over = Signal()
    counted = Signal(object)
    """ContextFit | None"""

    def __init__(
        self,
        open_chat: OpenChat,
        composer: Composer,
        full_context: FullContext,
        chats: ConversationTasks,
        engine: EngineClient,
        turns: TurnQueue,
        models: ModelLoading,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._open_chat = open_chat
        self._composer = composer
        self._full_context = full_context
        self._chats = chats
        self._engine = engine
        self._models = models
        self._is_counting = False
        self._is_stale = False
        self._timer = QTimer(self, singleShot=True, interval=COUNT_PAUSE_MS)
        self._timer.timeout.connect(self.pause_over)
        self.pause_over.connect(lambda: background.start(self.count()))
        self.counted.connect(composer.context_count.show_fit)
        composer.context_count.choice_made.connect(full_context.choose)
        full_context.changed.connect(self._chat_changed)
        composer.text_changed.connect(lambda _: self._soon())
        turns.begun.connect(lambda _: self._soon())
        turns.ended.connect(lambda _: self._soon())
        models.loading_changed.connect(self._soon)
        open_chat.settings_changed.connect(self._soon)

    def close(self) -> None:
        self._timer.stop()

    async def count(self) -> None:
        """One count at a time; what changes meanwhile is counted right after."""
        self._is_stale = True
        if self._is_counting:
            return
        self._is_counting = True
        try:
            while self._is_stale:
                self._is_stale = False
                fit = await self._count()
                if not self._is_stale:
                    self.counted.emit(fit)
        finally:
            self._is_counting = False

    async def _count(self) -> ContextFit | None:
        """None: there is nothing to count, or the chat's model is not the loaded one."""
        draft = self._composer.text()
        request = await next_request(
            self._open_chat,
            self._chats,
            self._models,
            draft=draft if draft.strip() else None,
            context=replace(self._open_chat.branch.context, choice=self._full_context.choice),
        )
        if request is None:
            return None
        try:
            return await self._engine.count(request)
        except EngineError:
            # Whoever sends the message will be told.
            return None

    def _soon(self) -> None:
        # Not begun anew by every key: whoever types without a pause sees it grow all the same.
        if not self._timer.isActive():
            self._timer.start()

    def _chat_changed(self) -> None:
        self._composer.context_count.show_choice(self._full_context.choice)
        self._soon()
