"""One entry of the store as a file: header, token ids, payload, each under a checksum.

Little-endian:
    preamble  8s magic, u32 version, u32 XXH32 of the two (in every version, so that a newer one is told from damage)
    header    32s fingerprint, 96s the file's own name, u32 num_token_ids, u64 payload bytes,
              16s XXH3-128 of the token ids, 16s XXH3-128 of the payload, u64 XXH3-64 of everything before it
    tokens    num_token_ids x i32: a block's own, none in a checkpoint (its hash says enough), a whole sequence's all
    payload   state bytes that the library reads back (its own layout, told apart by the fingerprint)
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import secrets
import stat
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import xxhash

from inference.kvcache.block import TOKEN_BYTES, folder_name, token_bytes
from inference.kvcache.fingerprint import FINGERPRINT_BYTES, Fingerprint
from inference.kvcache.read_buffers import ReadBuffers
from inference.kvcache.reuse import TokenArray

_logger = logging.getLogger(__name__)

MAGIC = b"EWKVSTOR"
VERSION = 1
TEMPORARY_PREFIX = ".tmp-"
_PREAMBLE = struct.Struct("<8sI")
_PREAMBLE_CHECKSUM = struct.Struct("<I")
_PREAMBLE_BYTES = _PREAMBLE.size + _PREAMBLE_CHECKSUM.size
_FIELDS = struct.Struct(f"<{FINGERPRINT_BYTES}s96sIQ16s16s")
_HEADER_CHECKSUM = struct.Struct("<Q")
_CHECKED_BYTES = _PREAMBLE_BYTES + _FIELDS.size
HEADER_BYTES = _CHECKED_BYTES + _HEADER_CHECKSUM.size
_WRITE_CHUNK_BYTES = 1 << 24
# More than a block of 256 tokens has; whole sequences and damaged files may be of any size.
_MOST_UNSEEN_BYTES = 1 << 26
_ABANDONED_AFTER_S = 24 * 3600

StateBytes = npt.NDArray[np.uint8]


class DamagedFile(Exception):
    """The file is not what was written; the message says what is wrong with it."""


class NewerVersion(Exception):
    """A later version of this program wrote the file: it is whole, but not ours to read or to remove."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    fingerprint: Fingerprint
    name: str
    num_token_ids: int
    payload_bytes: int
    tokens_checksum: bytes
    payload_checksum: bytes

    @property
    def payload_offset(self) -> int:
        return HEADER_BYTES + self.num_token_ids * TOKEN_BYTES

    @property
    def file_bytes(self) -> int:
        return self.payload_offset + self.payload_bytes


def file_bytes(num_token_ids: int, payload_bytes: int) -> int:
    return HEADER_BYTES + num_token_ids * TOKEN_BYTES + payload_bytes


def encode_head(fingerprint: Fingerprint, name: str, token_ids: TokenArray, payload: StateBytes) -> bytes:
    """Everything of the file that stands before the payload."""
    tokens = token_bytes(token_ids)
    preamble = _PREAMBLE.pack(MAGIC, VERSION)
    checked = (
        preamble
        + _PREAMBLE_CHECKSUM.pack(xxhash.xxh32_intdigest(preamble))
        + _FIELDS.pack(
            fingerprint,
            name.encode(),
            token_ids.size,
            payload.size,
            xxhash.xxh3_128_digest(tokens),
            xxhash.xxh3_128_digest(payload.data),
        )
    )
    return checked + _HEADER_CHECKSUM.pack(xxhash.xxh3_64_intdigest(checked)) + tokens


def decode_header(data: bytes) -> FileHeader:
    """Raises DamagedFile, NewerVersion."""
    if len(data) < _PREAMBLE_BYTES:
        raise DamagedFile(f"only {len(data)} bytes long")
    magic, version = _PREAMBLE.unpack_from(data)
    if magic != MAGIC:
        raise DamagedFile("not a file of the KV store")
    if _PREAMBLE_CHECKSUM.unpack_from(data, _PREAMBLE.size)[0] != xxhash.xxh32_intdigest(
        data[: _PREAMBLE.size]
    ):
        raise DamagedFile("the checksum of its version does not match")
    if version > VERSION:
        raise NewerVersion(f"of version {version}, newer than {VERSION}")
    if version < VERSION:
        raise DamagedFile(f"of version {version}, which is no longer read")
    if len(data) < HEADER_BYTES:
        raise DamagedFile(f"only {len(data)} bytes long")
    if _HEADER_CHECKSUM.unpack_from(data, _CHECKED_BYTES)[0] != xxhash.xxh3_64_intdigest(
        data[:_CHECKED_BYTES]
    ):
        raise DamagedFile("its header's checksum does not match")
    fingerprint, name, num_ids, payload_bytes, tokens_sum, payload_sum = _FIELDS.unpack_from(
        data, _PREAMBLE_BYTES
    )
    name = name.rstrip(b"\0").decode("ascii", errors="replace")
    return FileHeader(Fingerprint(fingerprint), name, num_ids, payload_bytes, tokens_sum, payload_sum)


def open_regular(path: Path) -> io.FileIO:
    """For reading, unbuffered. Raises OSError, also for a pipe or a device, which reading might wait for for ever."""
    file = io.FileIO(path, opener=_open_without_waiting)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return file


def read_header_and_tokens(path: Path) -> tuple[FileHeader, TokenArray]:
    """Reads no payload. Raises OSError, DamagedFile, NewerVersion."""
    with open_regular(path) as file:
        header = _read_header(file.read(HEADER_BYTES), str(path), os.fstat(file.fileno()).st_size)
        tokens = file.read(header.num_token_ids * TOKEN_BYTES)
    _check_tokens(tokens, header)
    return header, np.frombuffer(tokens, dtype="<i4").astype(np.int32)


def read_payload(path: str, buffers: ReadBuffers) -> tuple[StateBytes, StateBytes]:
    """The verified payload, and the buffer it lies in: to be given back to buffers once it is not needed any more.

    Read rather than mapped: what was verified cannot change any more, and a file that another program cuts short
    meanwhile costs no SIGBUS. One call for the whole file, since a chat may be many small ones. Raises OSError,
    DamagedFile, NewerVersion.
    """
    descriptor = _open_without_waiting(path, os.O_RDONLY)
    buffer = None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
        size = status.st_size
        if size > _MOST_UNSEEN_BYTES:
            # The header is asked before so much memory is.
            _read_header(os.read(descriptor, HEADER_BYTES), path, size)
            os.lseek(descriptor, 0, os.SEEK_SET)
        buffer = buffers.take(size)
        _read_into(descriptor, buffer[:size])
        header = _read_header(buffer[: min(size, HEADER_BYTES)].tobytes(), path, size)
        offset = header.payload_offset
        _check_tokens(buffer[HEADER_BYTES:offset].tobytes(), header)
        payload = buffer[offset:size]
        if xxhash.xxh3_128_digest(payload.data) != header.payload_checksum:
            raise DamagedFile("the checksum of its payload does not match")
        return payload, buffer
    except BaseException:
        if buffer is not None:
            buffers.give_back(buffer)
        raise
    finally:
        os.close(descriptor)


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for its writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def _read_into(descriptor: int, buffer: StateBytes) -> None:
    num_read = 0
    while num_read < buffer.size:
        count = os.readv(descriptor, [buffer[num_read:].data])
        if not count:
            raise DamagedFile("it became shorter while it was read")
        num_read += count


def _read_header(data: bytes, path: str, size: int) -> FileHeader:
    header = decode_header(data)
    # Before reading by its lengths: a header is believed only if the file is exactly as long as it says.
    if size != header.file_bytes:
        raise DamagedFile(f"{size} bytes long instead of {header.file_bytes}")
    folder, name = os.path.split(path)
    if header.name != name or folder_name(header.fingerprint) != os.path.basename(folder):
        raise DamagedFile("not the file that its name says")
    return header


def _check_tokens(tokens: bytes, header: FileHeader) -> None:
    if xxhash.xxh3_128_digest(tokens) != header.tokens_checksum:
        raise DamagedFile("the checksum of its token ids does not match")


def write_file(path: Path, *parts: bytes | memoryview) -> None:
    """Written under a temporary name first: what can be seen under its own is whole. Raises OSError.

    No fsync: a file that a power cut left incomplete fails its checksum and is a miss, nothing more.
    """
    temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600
        )
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest[:_WRITE_CHUNK_BYTES]) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def remove_abandoned_files(folder: Path, names: Iterable[str]) -> None:
    """Of the names in a folder, those of temporary files whose processes no longer run."""
    for path in (folder / name for name in names if name.startswith(TEMPORARY_PREFIX)):
        pid = path.name.removeprefix(TEMPORARY_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            old = time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S
            # Our own process number: a process before us had it (in a container, always the same one).
            if old or not pid.isdigit() or int(pid) == os.getpid() or not psutil.pid_exists(int(pid)):
                unlink(path)


def unlink(path: Path) -> bool:
    """Whether the file was there and is gone."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        _logger.warning("%s could not be removed: %s", path.name, error)
        return False
    return True
