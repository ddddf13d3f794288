"""What must hold of a store whatever was killed over it."""

from __future__ import annotations

from pathlib import Path

from inference.kvcache.block_store import BlockStore


def assert_whole(folder: Path) -> None:
    """Every file is as it was written, and once the store was opened nothing half-written is left."""
    store = BlockStore(folder, 10**9)
    assert store.flush(30)
    report = store.verify()
    store.close(30)
    assert (report.removed, report.newer) == (0, 0)
    assert list(folder.rglob(".tmp-*")) == []
