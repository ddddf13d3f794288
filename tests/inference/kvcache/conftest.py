"""A store without a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.kvcache.block_store import BlockStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    """Empty, with room for everything; closed after the test."""
    store = BlockStore(tmp_path / "kv", 10**9)
    yield store
    store.close(5)
