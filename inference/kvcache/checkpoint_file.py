"""One whole sequence's state as a file: header, token ids, state bytes, each under a checksum.

Little-endian:
    header   8s magic, u32 version, 32s fingerprint, u32 num_tokens, u32 pos_min, u64 state bytes,
             16s XXH3-128 of the token ids, 16s XXH3-128 of the state, u64 XXH3-64 of the header up to here
    tokens   num_tokens x i32
    state    as llama_state_seq_get_data wrote it (the library's own layout, told apart by the fingerprint)
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from inference.kvcache.fingerprint import FINGERPRINT_BYTES, Fingerprint
from inference.kvcache.reuse import TokenArray

MAGIC = b"EWKVSEQ\n"
VERSION = 1
_HEADER = struct.Struct(f"<8sI{FINGERPRINT_BYTES}sIIQ16s16s")
_HEADER_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size + _HEADER_CHECKSUM.size
_TOKEN_DTYPE = np.dtype("<i4")

StateBytes = npt.NDArray[np.uint8]


class DamagedCheckpoint(Exception):
    """The file is not what was written; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    fingerprint: Fingerprint
    num_tokens: int
    pos_min: int
    state_bytes: int
    tokens_checksum: bytes
    state_checksum: bytes

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.num_tokens * _TOKEN_DTYPE.itemsize + self.state_bytes


def checkpoint_name(fingerprint: Fingerprint, token_ids: TokenArray) -> str:
    """File name without folder: the content's identity, so that equal content is stored once."""
    digest = xxhash.xxh3_128(fingerprint)
    digest.update(token_ids.astype(_TOKEN_DTYPE).tobytes())
    return f"{digest.hexdigest()}.kvseq"


def encode_prefix(fingerprint: Fingerprint, token_ids: TokenArray, pos_min: int, state: StateBytes) -> bytes:
    """Everything of the file that stands before the state bytes."""
    tokens = token_ids.astype(_TOKEN_DTYPE).tobytes()
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        fingerprint,
        token_ids.size,
        pos_min,
        state.size,
        xxhash.xxh3_128_digest(tokens),
        xxhash.xxh3_128_digest(state.data),
    )
    return header + _HEADER_CHECKSUM.pack(xxhash.xxh3_64_intdigest(header)) + tokens


def decode_header(data: bytes) -> CheckpointHeader:
    """Raises DamagedCheckpoint."""
    if len(data) < HEADER_BYTES:
        raise DamagedCheckpoint(f"only {len(data)} bytes long")
    magic, version, fingerprint, num_tokens, pos_min, state_bytes, tokens_sum, state_sum = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        raise DamagedCheckpoint("not a KV state file")
    if _HEADER_CHECKSUM.unpack_from(data, _HEADER.size)[0] != xxhash.xxh3_64_intdigest(data[: _HEADER.size]):
        raise DamagedCheckpoint("its header's checksum does not match")
    if version != VERSION:
        raise DamagedCheckpoint(f"of version {version}, not {VERSION}")
    return CheckpointHeader(Fingerprint(fingerprint), num_tokens, pos_min, state_bytes, tokens_sum, state_sum)


def read_header_and_tokens(path: Path) -> tuple[CheckpointHeader, TokenArray]:
    """What the index needs; reads no state bytes. Raises OSError, DamagedCheckpoint."""
    with path.open("rb", buffering=0) as file:
        header = decode_header(file.read(HEADER_BYTES))
        size = os.fstat(file.fileno()).st_size
        # Before reading by its lengths: a header is believed only if the file is exactly as long as it says.
        if size != header.file_bytes:
            raise DamagedCheckpoint(f"{size} bytes long instead of {header.file_bytes}")
        tokens = file.read(header.num_tokens * _TOKEN_DTYPE.itemsize)
    if len(tokens) != header.num_tokens * _TOKEN_DTYPE.itemsize:
        raise DamagedCheckpoint("cut short while it was read")
    if xxhash.xxh3_128_digest(tokens) != header.tokens_checksum:
        raise DamagedCheckpoint("the checksum of its token ids does not match")
    return header, np.frombuffer(tokens, dtype=_TOKEN_DTYPE).astype(np.int32)


@contextlib.contextmanager
def mapped_state(path: Path, expected: CheckpointHeader) -> Iterator[StateBytes]:
    """The verified state bytes, mapped from the page cache without a copy. Raises OSError, DamagedCheckpoint."""
    with path.open("rb", buffering=0) as file:
        header = decode_header(file.read(HEADER_BYTES))
        if header != expected or os.fstat(file.fileno()).st_size != header.file_bytes:
            raise DamagedCheckpoint("not the file that was indexed")
        populate = getattr(
            mmap, "MAP_POPULATE", 0
        )  # Linux: one system call instead of a fault for every page
        options = (
            {"flags": mmap.MAP_SHARED | populate, "prot": mmap.PROT_READ}
            if populate
            else {"access": mmap.ACCESS_READ}
        )
        mapping = mmap.mmap(file.fileno(), header.file_bytes, **options)
    whole = np.frombuffer(mapping, dtype=np.uint8)
    state = whole[header.file_bytes - header.state_bytes :]
    try:
        if xxhash.xxh3_128_digest(state.data) != header.state_checksum:
            raise DamagedCheckpoint("the checksum of its state does not match")
        yield state
    finally:
        # A mapping with a view on it cannot be closed.
        del state, whole
        with contextlib.suppress(BufferError):
            mapping.close()
