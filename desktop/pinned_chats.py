"""Which chats the user keeps in the KV store, and telling the engine."""

from __future__ import annotations

from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.conversations import ConversationStore, DatabaseUnusable
from desktop.error_report import log
from inference import EngineClient


class PinnedChats:
    """The database is the truth; the engine is told all of it each time, so that nothing it missed stays wrong."""

    def __init__(self, chats: ConversationTasks, engine: EngineClient) -> None:
        self._chats = chats
        self._engine = engine

    async def tell(self) -> None:
        try:
            owners = await self._chats.run(ConversationStore.pinned_owners)
        except DatabaseUnusable as error:
            log.warning("the engine is told later which chats are pinned: %s", error)
            return
        self._engine.set_pins(owners)
