"""SHA-256 of a model's files, remembered by inode, size and time of change: a 30 GB file takes a minute to hash."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from inference.kvcache.block_file import open_regular

_logger = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 22


class ModelDigests:
    """Digests by file identity, in one JSON file that may be lost or damaged without harm."""

    def __init__(self, cache_file: Path) -> None:
        self._cache_file = cache_file

    def sha256(self, paths: Sequence[Path]) -> str:
        """Hex digest of one file; of several parts, the digest of their digests. Raises OSError."""
        digests = [self._file_sha256(path) for path in paths]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def _file_sha256(self, path: Path) -> str:
        status = path.stat()
        identity = (
            f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        )
        known = self._read()
        if identity not in known:
            digest = hashlib.sha256()
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
            # Read again: another process may have added its own meanwhile.
            known = {**self._read(), identity: digest.hexdigest()}
            self._write(known)
        return known[identity]

    def _read(self) -> dict[str, str]:
        try:
            with open_regular(self._cache_file) as file:
                known = json.loads(file.read())
        except (OSError, ValueError):
            return {}
        valid = isinstance(known, dict) and all(isinstance(digest, str) for digest in known.values())
        return known if valid else {}

    def _write(self, known: dict[str, str]) -> None:
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=self._cache_file.parent)
            with os.fdopen(descriptor, "w") as file:
                json.dump(known, file)
            os.replace(temporary, self._cache_file)
        except OSError as error:
            _logger.warning("model digests are not remembered: %s", error)
