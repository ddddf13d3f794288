"""Where chats are read from: files, the files of a folder, and those in a ZIP, which is never unpacked to disk."""

from __future__ import annotations

import contextlib
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from desktop.exchange.errors import NotReadable

MAX_FILES = 20_000
MAX_UNPACKED_BYTES = 4_000_000_000
"""Of all files in one ZIP together: what really comes out is counted, whatever its directory promises."""
_ZIP_ERRORS = (EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, ValueError)
_SUFFIXES = frozenset({".json", ".jsonl", ".zip"})


@dataclass(frozen=True, slots=True)
class Source:
    """One file's text. name: for the report. sibling: a file of that name in the same folder, if there is one."""

    name: str
    size: int
    open: Callable[[], contextlib.AbstractContextManager[Reading]]
    sibling: Callable[[str], Source | None]


@dataclass(frozen=True, slots=True)
class UnreadableSource:
    name: str
    reason: str


def sources(path: Path) -> Iterator[Source | UnreadableSource]:
    """The files that may hold chats. Nothing is followed out of a chosen folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        yield UnreadableSource(path.name, _os_reason(error))
        return
    if stat.S_ISDIR(mode):
        yield from _folder_sources(path)
    elif not stat.S_ISREG(mode):
        yield UnreadableSource(path.name, "it is no file")
    elif _is_zip(path):
        yield from _zip_sources(path)
    else:
        yield _file_source(path, path.name)


def _folder_sources(folder: Path) -> Iterator[Source | UnreadableSource]:
    num_files = 0
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            if path.suffix.lower() not in _SUFFIXES or path.is_symlink() or not path.is_file():
                continue
            num_files += 1
            shown = path.relative_to(folder).as_posix()
            if num_files > MAX_FILES:
                yield UnreadableSource(shown, f"the folder holds more than {MAX_FILES:,} files")
                return
            if _is_zip(path):
                yield UnreadableSource(shown, "it is a ZIP inside the folder; import it by itself")
            else:
                yield _file_source(path, shown)


def _file_source(path: Path, shown: str) -> Source:
    def sibling(name: str) -> Source | None:
        beside = path.with_name(name)
        if beside == path or beside.is_symlink() or not beside.is_file():
            return None
        return _file_source(beside, beside.name)

    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    return Source(shown, size, lambda: _opened(path), sibling)


class Reading:
    """Reads on behalf of a Source. Raises NotReadable."""

    def __init__(self, file: IO[bytes], budget: _Budget | None = None) -> None:
        self._file = file
        self._budget = budget

    def read(self, size: int) -> bytes:
        return self._counted(self._file.read, size)

    def readline(self, size: int) -> bytes:
        return self._counted(self._file.readline, size)

    def _counted(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(size)
        except OSError as error:
            raise NotReadable(_os_reason(error)) from error
        except _ZIP_ERRORS as error:
            raise NotReadable(f"it is damaged in the ZIP ({_one_line(error)})") from error
        if self._budget is not None:
            self._budget.left -= len(data)
            if self._budget.left < 0:
                most = MAX_UNPACKED_BYTES // 1_000_000_000
                raise NotReadable(f"the ZIP holds more than {most} GB; the rest was not read")
        return data


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Reading]:
    """Raises NotReadable."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotReadable(_os_reason(error)) from error
    with file:
        yield Reading(file)


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


def _zip_sources(path: Path) -> Iterator[Source | UnreadableSource]:
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, *_ZIP_ERRORS) as error:
        yield UnreadableSource(path.name, f"the ZIP is damaged ({_one_line(error)})")
        return
    with archive:
        budget = _Budget(MAX_UNPACKED_BYTES)
        infos = archive.infolist()
        by_name = {info.filename: info for info in infos}

        def source(info: zipfile.ZipInfo) -> Source:
            def sibling(name: str) -> Source | None:
                beside = by_name.get(str(PurePosixPath(info.filename).with_name(name)))
                return None if beside is None or beside is info else source(beside)

            return Source(
                _shown(info),
                min(info.file_size, MAX_UNPACKED_BYTES),
                lambda: _unpacked(archive, info, budget),
                sibling,
            )

        for number, info in enumerate(infos):
            if number >= MAX_FILES:
                yield UnreadableSource(path.name, f"the ZIP holds more than {MAX_FILES:,} files")
                return
            suffix = PurePosixPath(info.filename).suffix.lower()
            if info.is_dir() or suffix not in _SUFFIXES or "__MACOSX/" in info.filename:
                continue
            if suffix == ".zip":
                yield UnreadableSource(_shown(info), "it is a ZIP inside the ZIP; unpack it first")
            else:
                yield source(info)


@dataclass(slots=True)
class _Budget:
    left: int


@contextlib.contextmanager
def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: _Budget) -> Iterator[Reading]:
    """Raises NotReadable."""
    if info.flag_bits & 1:
        raise NotReadable("it is encrypted")
    try:
        file = archive.open(info)
    except (OSError, RuntimeError, *_ZIP_ERRORS) as error:
        raise NotReadable(f"it cannot be unpacked ({_one_line(error)})") from error
    with file:
        yield Reading(file, budget)


def _shown(info: zipfile.ZipInfo) -> str:
    """Only ever shown: nothing is written under a name from a ZIP."""
    return " ".join(info.filename.split())[-100:] or "(no name)"


def _os_reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or "it cannot be opened"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
