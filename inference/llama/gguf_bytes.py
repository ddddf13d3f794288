"""The bytes of a GGUF file's header: read through a small window, never past its end, never without bound.

A mapped file would be simpler, but one that shrinks under its mapping kills the process with SIGBUS.
"""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# Far beyond any real model, and small enough that a hostile file costs neither time nor memory.
MAX_TEXT_BYTES = 4 << 20
"""Keys and strings kept of one file together."""
MAX_BYTES_READ = 256 << 20
WINDOW_BYTES = 256 << 10

DOWNLOAD_AGAIN = "download it again"

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")


class InvalidGGUF(ValueError):
    """The file is no model that can be loaded. The message is one line: what is wrong and what to do."""


class ModelFileMissing(InvalidGGUF):
    """There is no file at this path."""


def gguf_error(path: Path, problem: str, advice: str) -> InvalidGGUF:
    """E.g. "model.gguf is a web page, not a model: download it again"."""
    return InvalidGGUF(_one_line(f"{path.name} {problem}: {advice}"))


def _one_line(message: str) -> str:
    """Names of files may hold anything, line ends too."""
    return message if message.isprintable() else ascii(message)[1:-1]


@contextmanager
def opened_gguf(path: Path) -> Iterator[HeaderReader]:
    """A reader at the file's first byte. Every error of the file system inside the block becomes InvalidGGUF."""
    if "\0" in str(path):  # the system's calls raise another ValueError for it
        raise gguf_error(path, "is no possible name of a file", "choose a .gguf file")
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise gguf_error(path, "is a folder, not a model", "choose the .gguf file inside it")
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for ever
            raise gguf_error(path, "is not a regular file", "choose a .gguf file")
        with path.open("rb", buffering=0) as file:
            yield HeaderReader(path, file, status.st_size)
    except (FileNotFoundError, NotADirectoryError):
        advice = "put it back, choose where it is now, or choose another model"
        raise ModelFileMissing(_one_line(f"{path.name} is not in {path.parent}: {advice}")) from None
    except PermissionError:
        advice = "allow this user to read it, or choose another model"
        raise gguf_error(path, "may not be read by this user", advice) from None
    except OSError as error:
        problem = f"could not be read ({error.strerror})"
        raise gguf_error(path, problem, "check the disk, or choose another model") from None


class HeaderReader:
    """Little-endian values from a window that slides over the file. Every method raises InvalidGGUF, no other."""

    __slots__ = ("_at", "_bytes_left", "_file", "_path", "_size", "_text_left", "_window", "_window_offset")

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._window = b""
        self._window_offset = 0
        self._at = 0
        self._bytes_left = MAX_BYTES_READ
        self._text_left = MAX_TEXT_BYTES

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    @property
    def offset(self) -> int:
        return self._window_offset + self._at

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return self._size - self.offset

    def error(self, problem: str, advice: str = DOWNLOAD_AGAIN) -> InvalidGGUF:
        return gguf_error(self._path, problem, advice)

    def damaged(self, problem: str) -> InvalidGGUF:
        return self.error(f"is damaged ({problem})")

    def cut_off(self) -> InvalidGGUF:
        return self.error("ends inside its header (it was cut off, or it is damaged)")

    def skip(self, count: int) -> None:
        if count > self.remaining:
            raise self.cut_off()
        self._at += count

    def take(self, count: int) -> bytes:
        """count: a few kilobytes at most; longer text goes through `text`."""
        self._fill(count)
        taken = self._window[self._at : self._at + count]
        self._at += count
        return taken

    def peek(self, count: int) -> bytes:
        """The next count bytes, or as many as there are."""
        self._fill(min(count, self.remaining))
        return self._window[self._at : self._at + count]

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self.take(8))[0])

    def text(self, length: int) -> bytes:
        """Bytes that will be kept, so that all of them together are bounded."""
        if length > self.remaining:
            raise self.cut_off()
        self._text_left -= length
        if self._text_left < 0:
            raise self.damaged("an absurd amount of text in its header")
        return self.take(length)

    def skip_strings(self, count: int) -> None:
        # One struct call a string and nothing else: vocabularies have a quarter of a million.
        unpack = _U64.unpack_from
        done = 0
        while done < count:
            self._fill(8)
            window, at, last = self._window, self._at, len(self._window) - 8
            while at <= last and done < count:
                at += 8 + unpack(window, at)[0]
                done += 1
            self._at = at
            if self.remaining < 0:
                raise self.cut_off()

    def hash_strings(self, count: int) -> array[int]:
        """One hash for each string that is not empty: 8 bytes instead of the 60 of a bytes object."""
        hashes = array("q")
        unpack = _U64.unpack_from
        done = 0
        while done < count:
            self._fill(8)
            length = unpack(self._window, self._at)[0]
            if length > WINDOW_BYTES:
                raise self.damaged(f"a string of {length:,} bytes where a word belongs")
            self._fill(8 + length)
            window, at, last = self._window, self._at, len(self._window) - 8
            while at <= last and done < count:
                end = at + 8 + unpack(window, at)[0]
                if end > len(window):
                    break
                if end > at + 8:
                    hashes.append(hash(window[at + 8 : end]))
                at = end
                done += 1
            self._at = at
        return hashes

    def _fill(self, count: int) -> None:
        """Make the next count bytes lie in the window."""
        if self._at + count <= len(self._window):
            return
        if count > self.remaining:
            raise self.cut_off()
        size = min(max(count, WINDOW_BYTES), self.remaining)
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self.damaged("an absurdly long header")
        self._window_offset, self._at = self.offset, 0
        self._file.seek(self._window_offset)
        self._window = self._file.read(size)
        if len(self._window) < count:  # it became shorter while it was read
            raise self.cut_off()
