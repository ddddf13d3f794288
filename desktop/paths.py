"""Where this user's data lives, and whether it can be written there."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

DATA_DIR_VARIABLE = "EVERWARM_DATA_DIR"
_PROBE_BYTES = 4096


class DataFolderUnusable(Exception):
    """Nothing can be kept in the data folder; `str()` is one line saying why and what to do."""


@dataclass(frozen=True, slots=True)
class DataPaths:
    """Every file the app keeps lies under `root`."""

    root: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> DataPaths:
        """EVERWARM_DATA_DIR if it is set, else the user data folder of this system."""
        chosen = environ.get(DATA_DIR_VARIABLE)
        if chosen:
            return cls(Path(chosen).expanduser().absolute())
        return cls(platformdirs.user_data_path("everwarm", appauthor=False))

    @property
    def database(self) -> Path:
        return self.root / "chats.sqlite3"

    @property
    def kv(self) -> Path:
        return self.root / "kv"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def load_marks(self) -> Path:
        return self.root / "loads.json"

    @property
    def settings(self) -> Path:
        return self.root / "settings.toml"

    def prepare(self) -> None:
        """Make the folders, readable by their owner only, and prove that `root` takes bytes.

        Raises DataFolderUnusable.
        """
        path = self.root
        try:
            # An existing root may be shared with others (EVERWARM_DATA_DIR=/tmp), so only what lies in it is closed.
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (self.kv, self.models, self.logs):
                path.mkdir(mode=0o700, exist_ok=True)
                path.chmod(0o700)
            for path in (self.database, self.settings):
                if path.exists():
                    path.chmod(0o600)
            path = self.root / ".write-probe"
            _write_and_remove(path)
        except OSError as error:
            raise DataFolderUnusable(_explain(self.root, path, error)) from error


def _write_and_remove(probe: Path) -> None:
    """Permission bits prove nothing (root, read-only mounts, quotas, full disks), so bytes really go to the disk."""
    descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, bytes(_PROBE_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _explain(root: Path, path: Path, error: OSError) -> str:
    elsewhere = f"or set {DATA_DIR_VARIABLE} to another folder, then start again."
    match error.errno:
        case errno.EROFS:
            return f"The data folder {root} is read-only. Make it writable, {elsewhere}"
        case errno.ENOSPC | errno.EDQUOT:
            return f"The disk that holds the data folder {root} is full. Free some space, {elsewhere}"
        case errno.EEXIST | errno.ENOTDIR:
            return f"{path} should be a folder, but something else has that name. Move it away, {elsewhere}"
        case errno.EACCES | errno.EPERM:
            return f"You have no permission to write to {path}. Change its permissions, {elsewhere}"
        case _:
            reason = error.strerror or type(error).__name__
            return f"The data folder {root} cannot be used ({reason}). Repair it, {elsewhere}"
