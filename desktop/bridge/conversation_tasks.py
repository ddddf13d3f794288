"""The ConversationStore on one thread of its own, awaited from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from desktop.conversations import ConversationStore

P = ParamSpec("P")
T = TypeVar("T")


class ConversationTasks:
    """Calls run one after another in the order they were made, so a later one sees what an earlier one wrote.

    The store is opened on the thread that uses it: SQLite connections belong to one thread.
    """

    def __init__(self, open_store: Callable[[], ConversationStore]) -> None:
        self._open_store = open_store
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="conversations")
        self._store: ConversationStore | None = None
        self._closed = False

    async def open(self) -> None:
        """Raises DatabaseUnusable."""
        self._store = await self._in_thread(self._open_store)

    async def run(
        self, action: Callable[Concatenate[ConversationStore, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`await chats.run(ConversationStore.rename, conversation_id, title)`. Raises what the action raises."""
        assert self._store is not None, "open() first"
        store = self._store
        return await self._in_thread(lambda: action(store, *args, **kwargs))

    async def close(self) -> None:
        """Waits for the calls made so far; the store is closed on its own thread."""
        if self._closed:
            return
        self._closed = True
        store, self._store = self._store, None
        if store is not None:
            await self._in_thread(store.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
