"""How much disk the store may take where nobody said otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

_MAX_BUDGET_BYTES = 20 * 10**9


def default_budget_bytes(folder: Path) -> int:
    """A tenth of the free disk, at most 20 GB. The folder need not exist yet."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return min(_MAX_BUDGET_BYTES, shutil.disk_usage(existing).free // 10)
