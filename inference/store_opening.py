"""The prefix store of an engine, or none where its folder cannot be used: chats go on without."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from inference.events import Event, StoreNotice
from inference.kvcache.block_store import BlockStore
from inference.kvcache.default_budget import default_budget_bytes

_logger = logging.getLogger(__name__)


def open_store(
    folder: Path | None,
    budget_bytes: int | None,
    emit: Callable[[Event], None],
    on_stored: Callable[[], None],
) -> BlockStore | None:
    """folder None: nothing is kept on disk. budget_bytes None: the default. What goes wrong is told as StoreNotice."""
    if folder is None:
        return None
    try:
        return BlockStore(
            folder,
            default_budget_bytes(folder) if budget_bytes is None else budget_bytes,
            on_notice=lambda notice: emit(StoreNotice(notice)),
            on_stored=on_stored,
        )
    except OSError as error:
        _logger.warning("the store cannot be used: %s", error)
        emit(
            StoreNotice(
                f"The KV store {folder} cannot be used ({error.strerror or error}): chats work, but will be read "
                "again after a restart. Check the folder and its permissions."
            )
        )
        return None
