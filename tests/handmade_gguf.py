"""GGUF files made byte by byte, well-formed or with one fault each, and a check of how they are refused."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from gguf import GGUFValueType

from inference.llama.gguf_header import InvalidGGUF, read_gguf_header

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = (
    GGUFValueType[name]
    for name in ("UINT8", "UINT32", "INT32", "FLOAT32", "BOOL", "STRING", "ARRAY", "UINT64")
)
MAX_GROWTH_BYTES = 50_000_000


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str | bytes, value_type: int, payload: bytes) -> bytes:
    """One key-value pair of the metadata."""
    return text(key) + struct.pack("<I", value_type) + payload


def u32(key: str, value: int) -> bytes:
    return entry(key, U32, struct.pack("<I", value))


def string(key: str, value: str) -> bytes:
    return entry(key, STRING, text(value))


def array_of(key: str, item_type: int, count: int, payload: bytes = b"") -> bytes:
    return entry(key, ARRAY, struct.pack("<IQ", item_type, count) + payload)


def tensor(
    name: str = "token_embd.weight",
    dims: Sequence[int] = (8, 4),
    type_id: int = 0,
    offset: int = 0,
    n_dims: int | None = None,
) -> bytes:
    shape = struct.pack(f"<I{len(dims)}q", len(dims) if n_dims is None else n_dims, *dims)
    return text(name) + shape + struct.pack("<IQ", type_id, offset)


MODEL = {
    "architecture": string("general.architecture", "llama"),
    "context_length": u32("llama.context_length", 512),
    "embedding_length": u32("llama.embedding_length", 8),
    "block_count": u32("llama.block_count", 1),
    "head_count": u32("llama.attention.head_count", 2),
    "tokenizer": string("tokenizer.ggml.model", "gpt2"),
    "tokens": array_of("tokenizer.ggml.tokens", STRING, 2, text("a") + text("b")),
}
# 8 × 4 elements of 4 bytes.
TENSOR_BYTES = 128


def gguf(
    *extra: bytes,
    without: str = "",
    tensors: Sequence[bytes] | None = None,
    data: bytes = bytes(TENSOR_BYTES),
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
    alignment: int = 32,
    **replaced: bytes,
) -> bytes:
    """A tiny well-formed file, or one with the given faults."""
    entries = [replaced.get(name, part) for name, part in MODEL.items() if name != without] + list(extra)
    infos = [tensor()] if tensors is None else tensors
    header = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(infos) if num_tensors is None else num_tensors,
        len(entries) if num_keys is None else num_keys,
    )
    header += b"".join(entries) + b"".join(infos)
    return header + bytes(-len(header) % alignment) + data


def refusal(path: Path, content: bytes | None = None) -> str:
    """Why read_gguf_header refuses the file; checks that this takes little memory and is told in one line."""
    if content is not None:
        path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidGGUF) as refused:
            read_gguf_header(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MAX_GROWTH_BYTES
    message = str(refused.value)
    assert message.isprintable()
    return message


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "a web page": b"\n<!DOCTYPE html><html><head><title>Sign in</title></head></html>",
    "wrong magic": b"GGUX" + gguf()[4:],
    "version 99": gguf(version=99),
    "an empty key": gguf(entry("", U8, b"\1")),
    "a key of 2^48 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**48) + b"key",
    "a dimension of 0": gguf(tensors=[tensor(dims=(8, 0))]),
    "9 dimensions": gguf(tensors=[tensor(dims=[1] * 9)]),
    "an alignment of 0": gguf(u32("general.alignment", 0)),
    "no attention heads": gguf(head_count=u32("llama.attention.head_count", 0)),
    "an array of 2^60 values": gguf(array_of("some.array", STRING, 2**60)),
    "duplicate keys": gguf(u32("llama.context_length", 512)),
}
"""Files that users' programs have crashed on. Reported as ggml-org/llama.cpp#24884, ggml-org/whisper.cpp#3864,
leejet/stable-diffusion.cpp#1397, ggml-org/ggml#1505."""
