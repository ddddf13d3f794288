"""Which loads were begun and never ended, kept on disk: whatever ended the process then would do it again."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from inference.model_config import ModelConfig

_logger = logging.getLogger(__name__)
_MAX_MARKS = 20


class LoadMarks:
    """A small file that one process at a time writes. Where it cannot be written, loads are as they would be without.
    path None: nothing is remembered."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> tuple[ModelConfig, ...]:
        """Oldest first; none where the file is missing or damaged."""
        if self._path is None:
            return ()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[ModelConfig, ...])
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError) as error:
            _logger.warning("%s cannot be read: %s", self._path, error)
            return ()

    @contextmanager
    def loading(self, config: ModelConfig) -> Iterator[None]:
        """Marked while the load runs, however it ends, unless it ends the process."""
        self._write([*self._others(config), config])
        try:
            yield
        finally:
            self.forget(config)

    def forget(self, config: ModelConfig) -> None:
        """That load came to an end, or was ended for another reason."""
        if config in self.read():
            self._write(self._others(config))

    def _others(self, config: ModelConfig) -> list[ModelConfig]:
        return [known for known in self.read() if known != config]

    def _write(self, configs: Sequence[ModelConfig]) -> None:
        if self._path is None:
            return
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            if not configs:
                self._path.unlink(missing_ok=True)
                return
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(configs[-_MAX_MARKS:]))
                file.flush()
                # A driver may take the whole computer with it.
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            _logger.warning("%s cannot be written: %s", self._path, error)
            with contextlib.suppress(OSError):
                temporary.unlink()
