"""Purged chats, and telling the engine to forget what it keeps of them."""

from __future__ import annotations

from dataclasses import dataclass

from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.conversations import ConversationStore, DatabaseUnusable, NotSaved
from desktop.error_report import log
from inference import EngineClient


@dataclass(frozen=True, slots=True)
class Told:
    """Whom the worker of that process id was told to forget."""

    owners: tuple[str, ...]
    worker_pid: int | None


class ForgottenOwners:
    """An owner stays in the database until the engine has surely forgotten it: it may die or be closed before."""

    def __init__(self, chats: ConversationTasks, engine: EngineClient) -> None:
        self._chats = chats
        self._engine = engine
        self._is_closed = False

    def close(self) -> None:
        """The engine is being closed: to tell it anything more would start it anew."""
        self._is_closed = True

    async def tell(self) -> Told:
        """Tell the engine of all there are; to tell it twice changes nothing."""
        told: list[str] = []
        try:
            for owner in await self._chats.run(ConversationStore.owners_to_forget):
                if self._is_closed:
                    break
                self._engine.forget(owner)
                told.append(owner)
        except (DatabaseUnusable, OSError) as error:
            log.warning("the engine is told later what to forget: %s", error)
        return Told(tuple(told), self._engine.worker_pid)

    async def confirm(self, told: Told) -> None:
        """The engine has done something it was asked to do after tell(), and it works in order."""
        if not told.owners or self._engine.worker_pid != told.worker_pid:
            return
        try:
            await self._chats.run(ConversationStore.owners_forgotten, told.owners)
        except NotSaved as error:
            log.warning("the engine is told again what to forget: %s", error)
