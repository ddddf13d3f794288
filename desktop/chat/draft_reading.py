"""The model reads a draft while it is typed, so that it has little left to read at Enter."""

from __future__ import annotations

import psutil
from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.composer import Composer
from desktop.chat.next_request import next_request
from desktop.chat.open_chat import OpenChat
from desktop.chat.turn_queue import TurnQueue
from desktop.error_report import log
from desktop.model_loading import ModelLoading
from inference import EngineClient, ReadAhead

DRAFT_READING_PAUSE_MS = 200
"""How often at most the engine is told of a draft that grows."""


def whole_words(draft: str) -> str:
    """The draft without its last word, which may go on, and without what is white around it."""
    end = max((place for place, character in enumerate(draft) if character.isspace()), default=0)
    return draft[:end].strip()


STILL_MS = 400
"""Whoever types nothing for so long may send next what is there."""
OPENED_PAUSE_MS = 500
"""A chat with a draft is first brought into memory (see ChatPrefetch), and then the draft read behind it."""


class DraftReading(QObject):
    """The engine reads it only while no reply is computed. Never loads a model for it; nothing of it is stored."""

    pause_over = Signal()
    """Words may be new."""
    still = Signal()
    """Nobody types on."""

    def __init__(
        self,
        open_chat: OpenChat,
        composer: Composer,
        chats: ConversationTasks,
        engine: EngineClient,
        turns: TurnQueue,
        models: ModelLoading,
        settings: SettingsWriter,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._open_chat = open_chat
        self._composer = composer
        self._chats = chats
        self._engine = engine
        self._models = models
        self._settings = settings
        self._told: tuple[ReadAhead, str] | None = None
        self._timer = QTimer(self, singleShot=True)
        self._timer.timeout.connect(self.pause_over)
        self.pause_over.connect(lambda: background.start(self.read(ReadAhead.WORDS)))
        self._still_timer = QTimer(self, singleShot=True)
        self._still_timer.timeout.connect(self.still)
        self.still.connect(lambda: background.start(self.read(ReadAhead.ALL)))
        composer.text_changed.connect(lambda _: self._soon(DRAFT_READING_PAUSE_MS))
        open_chat.opened.connect(lambda _: self._begin_anew())
        open_chat.settings_changed.connect(self._begin_anew)
        # What was typed meanwhile follows a longer chat now.
        turns.ended.connect(lambda _: self._begin_anew())

    def close(self) -> None:
        self._timer.stop()
        self._still_timer.stop()

    async def read(self, how_much: ReadAhead) -> None:
        """Tell the engine what is typed so far, if that is news: its whole words, or all of it as it would be sent."""
        typed = self._composer.text()
        draft = typed if how_much is ReadAhead.ALL else whole_words(typed)
        if not draft.strip() or (how_much, draft) == self._told or not self._is_wanted():
            return
        if how_much is ReadAhead.WORDS and self._told == (ReadAhead.ALL, typed):
            return
        request = await next_request(self._open_chat, self._chats, self._models, draft=draft)
        if request is None:
            return
        if [message.role for message in request.messages or ()][-2:] == ["user", "user"]:
            return
        self._told = how_much, draft
        log.info("draft of %d characters to be read (%s)", len(draft), how_much.value)
        self._engine.prefetch(request, how_much)

    def _is_wanted(self) -> bool:
        when = self._settings.settings.read_drafts
        return not (when == "never" or (when == "on mains power" and _on_battery()))

    def _soon(self, pause_ms: int) -> None:
        # Not begun anew by every key: whoever types without a pause is read all the same.
        if not self._timer.isActive():
            self._timer.start(pause_ms)
        self._still_timer.start(pause_ms + STILL_MS)

    def _begin_anew(self) -> None:
        self._told = None
        self._soon(OPENED_PAUSE_MS)


def _on_battery() -> bool:
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is not None and battery.power_plugged is False
