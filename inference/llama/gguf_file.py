"""The structure of one GGUF file: metadata and tensors, walked once without trusting a byte of it.

The format is ggml's docs/gguf.md; what is refused here is what ggml refuses, and what would make it abort.
Names and sizes of types come from the `gguf` package, its GGUFReader does not: it takes 1.5 s for a vocabulary of
49,000, more than a gigabyte for an array that claims 2^60 bytes, and it lets an empty key or a string that ends
behind the file pass.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_VERSION,
    GGUFValueType,
    Keys,
)

from inference.llama.gguf_bytes import (
    DOWNLOAD_AGAIN,
    MAX_TEXT_BYTES,
    HeaderReader,
    InvalidGGUF,
    gguf_error,
    opened_gguf,
)

Scalar = str | int | float | bool

# Far beyond any real model.
MAX_METADATA_KEYS = 4_096
MAX_TENSORS = 1 << 17
MAX_ARRAY_STRINGS = 2_000_000
"""Tokens and merges of one file together; the largest vocabularies known have about 800,000."""
MAX_KEY_BYTES = 0xFFFF
MAX_STRING_BYTES = MAX_TEXT_BYTES // 4
"""A longer string (some files carry a whole tokenizer.json) is stepped over."""

MAX_DIMS = 4
MAX_TENSOR_NAME_BYTES = 63
INT64_MAX = 2**63 - 1

_SCALAR_FORMATS = {
    int(GGUFValueType.UINT8): "<B",
    int(GGUFValueType.INT8): "<b",
    int(GGUFValueType.UINT16): "<H",
    int(GGUFValueType.INT16): "<h",
    int(GGUFValueType.UINT32): "<I",
    int(GGUFValueType.INT32): "<i",
    int(GGUFValueType.FLOAT32): "<f",
    int(GGUFValueType.BOOL): "<?",
    int(GGUFValueType.UINT64): "<Q",
    int(GGUFValueType.INT64): "<q",
    int(GGUFValueType.FLOAT64): "<d",
}
_STRING = int(GGUFValueType.STRING)
_ARRAY = int(GGUFValueType.ARRAY)
# Name, elements and bytes of a block. The native library knows Q2_0, gguf 0.19 does not yet.
_TENSOR_TYPES: dict[int, tuple[str, int, int]] = {42: ("Q2_0", 64, 18)} | {
    int(tensor_type): (tensor_type.name, *sizes) for tensor_type, sizes in GGML_QUANT_SIZES.items()
}


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """What is kept of an array: its payload begins offset bytes into the file. item_type: e.g. "int32"."""

    item_type: str
    count: int
    offset: int


Metadata = dict[str, Scalar | GGUFArray]


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What one file holds. elements_by_type: parameters by the type they are stored in, e.g. "Q4_1"."""

    path: Path
    version: int
    size_bytes: int
    metadata: Metadata
    num_tensors: int
    elements_by_type: Counter[str]

    def error(self, problem: str, advice: str = DOWNLOAD_AGAIN) -> InvalidGGUF:
        return gguf_error(self.path, problem, advice)


def read_gguf_file(path: Path) -> GGUFFile:
    """Walk metadata and tensor infos of one file, and check that all its tensor data is there.

    Raises ModelFileMissing or InvalidGGUF, and nothing else.
    """
    with opened_gguf(path) as reader:
        version, num_tensors, num_keys = _read_counts(reader)
        metadata = _read_metadata(reader, num_keys)
        elements_by_type = _read_tensors(reader, num_tensors, _alignment(reader, metadata))
        return GGUFFile(path, version, reader.size, metadata, num_tensors, elements_by_type)


def read_integers(gguf: GGUFFile, values: GGUFArray) -> tuple[int, ...]:
    """An array's values; the caller bounds its count. Raises InvalidGGUF, also if these are not whole numbers."""
    item = struct.Struct(_SCALAR_FORMATS.get(int(GGUFValueType[values.item_type.upper()]), "<"))
    if item.format[1:] not in tuple("BbHhIiQq"):
        raise gguf.error(f"has an array of {values.item_type} where whole numbers belong")
    with opened_gguf(gguf.path) as reader:
        reader.skip(values.offset)
        return tuple(number for (number,) in item.iter_unpack(reader.take(item.size * values.count)))


def _read_counts(reader: HeaderReader) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata keys."""
    if reader.size == 0:
        raise reader.error("is empty")
    start = reader.peek(512)
    if not start.startswith(b"GGUF"):
        raise reader.error(*_what_it_is_instead(start))
    if len(start) < 24:
        raise reader.cut_off()
    version, num_tensors, num_keys = struct.unpack_from("<IQQ", start, 4)
    if version and version & 0xFFFF == 0:
        raise reader.error("is made for big-endian computers", "download the usual, little-endian file")
    if version < 2:
        advice = "download a newer conversion of this model"
        raise reader.error(f"has GGUF version {version}, which is no longer supported", advice)
    if version > GGUF_VERSION:
        advice = "update Everwarm, or download another conversion of this model"
        raise reader.error(f"has GGUF version {version}, and this program knows {GGUF_VERSION}", advice)
    if num_tensors > MAX_TENSORS:
        raise reader.damaged(f"it claims {num_tensors:,} tensors")
    if num_keys > MAX_METADATA_KEYS:
        raise reader.damaged(f"it claims {num_keys:,} metadata keys")
    reader.skip(24)
    return version, num_tensors, num_keys


def _what_it_is_instead(start: bytes) -> tuple[str, str]:
    """Problem and advice for a file that does not begin with "GGUF"."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "is a web page, not a model", DOWNLOAD_AGAIN
    if text.startswith(b"version https://git-lfs"):
        return "only points to a model (Git LFS)", "download the model file itself"
    if start.startswith(b"PK\x03\x04"):
        return "is a zip archive, not a model", "unpack it, or download the model as .gguf"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 32:
        return "is a safetensors file", "download the same model as .gguf"
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg"):
        return "is a model in a format older than GGUF", "download a newer conversion of this model"
    if not start.strip(b"\x00"):
        return "begins with nothing but zeros (a download that did not finish)", DOWNLOAD_AGAIN
    # The last character may have been cut in two, hence "ignore" behind a check for control characters.
    readable = start.decode("utf-8", errors="ignore")
    if len(readable.encode()) > len(start) - 4 and all(c.isprintable() or c.isspace() for c in readable):
        return "is a text file, not a model", "choose a .gguf file"
    return "is not a GGUF model", "choose a .gguf file"


def _read_metadata(reader: HeaderReader, num_keys: int) -> Metadata:
    metadata: Metadata = {}
    strings_left = MAX_ARRAY_STRINGS
    for _ in range(num_keys):
        key = _read_key(reader)
        if key in metadata:
            raise reader.damaged(f"the metadata key {_quoted(key)} is there twice")
        value_type = reader.u32()
        if value_type == _ARRAY:
            metadata[key] = values = _read_array(reader, key, strings_left)
            strings_left -= values.count if values.item_type == "string" else 0
        elif value_type == _STRING:
            length = reader.u64()
            if length > MAX_STRING_BYTES:
                reader.skip(length)
            else:
                metadata[key] = reader.text(length).decode("utf-8", errors="replace")
        elif item_format := _SCALAR_FORMATS.get(value_type):
            metadata[key] = struct.unpack(item_format, reader.take(struct.calcsize(item_format)))[0]
        else:
            raise reader.damaged(f"unknown type of value {value_type} for {_quoted(key)}")
    return metadata


def _read_key(reader: HeaderReader) -> str:
    length = reader.u64()
    if length == 0:
        raise reader.damaged("an empty metadata key")
    if length > MAX_KEY_BYTES:
        raise reader.damaged(f"a metadata key of {length:,} bytes")
    return reader.text(length).decode("utf-8", errors="backslashreplace")


def _read_array(reader: HeaderReader, key: str, max_strings: int) -> GGUFArray:
    item_type, count = reader.u32(), reader.u64()
    offset = reader.offset
    if item_type == _STRING:
        if count > max_strings:
            raise reader.damaged(f"it claims {count:,} strings in {_quoted(key)}")
        if key == Keys.Tokenizer.LIST:
            _check_tokens_differ(reader, count)
        else:
            reader.skip_strings(count)
    elif item_format := _SCALAR_FORMATS.get(item_type):
        if count > reader.remaining:
            raise reader.damaged(f"it claims {count:,} values in {_quoted(key)}")
        reader.skip(count * struct.calcsize(item_format))
    elif item_type == _ARRAY:
        raise reader.error(f"has an array of arrays in {_quoted(key)}", "choose another model")
    else:
        raise reader.damaged(f"unknown type of value {item_type} in {_quoted(key)}")
    return GGUFArray(GGUFValueType(item_type).name.lower(), count, offset)


def _check_tokens_differ(reader: HeaderReader, count: int) -> None:
    """llama.cpp asserts it, which ends the process; only empty tokens are given names of their own."""
    hashes = np.sort(np.frombuffer(reader.hash_strings(count), dtype=np.int64))
    if np.any(hashes[1:] == hashes[:-1]):
        raise reader.damaged("its vocabulary has the same token twice")


def _alignment(reader: HeaderReader, metadata: Metadata) -> int:
    alignment = metadata.get(Keys.General.ALIGNMENT, GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        shown = alignment if isinstance(alignment, int) else "no number"
        raise reader.damaged(f"its alignment is {shown}, not a power of two")
    return alignment


def _read_tensors(reader: HeaderReader, num_tensors: int, alignment: int) -> Counter[str]:
    """Elements by type. Each tensor must lie right behind the one before, and the last one inside the file."""
    elements_by_type: Counter[str] = Counter()
    names: set[bytes] = set()
    expected_offset = end = 0
    for _ in range(num_tensors):
        length = reader.u64()
        if length > MAX_TENSOR_NAME_BYTES:
            raise reader.damaged(f"a tensor name of {length:,} bytes")
        raw_name = reader.take(length)
        name = _quoted(raw_name.decode("utf-8", errors="backslashreplace"))
        if raw_name in names:
            raise reader.damaged(f"the tensor {name} is there twice")
        names.add(raw_name)
        elements, row_elements = _read_shape(reader, name)
        type_id, offset = reader.u32(), reader.u64()
        if type_id not in _TENSOR_TYPES:
            advice = "update Everwarm, or download another quantisation of this model"
            raise reader.error(f"has the unknown tensor type {type_id} ({name})", advice)
        type_name, block_elements, block_bytes = _TENSOR_TYPES[type_id]
        if row_elements % block_elements:
            raise reader.damaged(f"the rows of {name} are not whole blocks of {type_name}")
        if offset % alignment:
            raise reader.damaged(f"the tensor {name} is not aligned to {alignment:,} bytes")
        if offset != expected_offset:
            raise reader.damaged(f"the tensor {name} is not where it should be")
        end = offset + elements // block_elements * block_bytes
        expected_offset = _padded(end, alignment)
        elements_by_type[type_name] += elements
    missing_bytes = _padded(reader.offset, alignment) + end - reader.size
    if num_tensors and missing_bytes > 0:
        raise reader.error(f"is cut off: {missing_bytes:,} bytes are missing at its end")
    return elements_by_type


def _read_shape(reader: HeaderReader, name: str) -> tuple[int, int]:
    """Elements of the tensor, and of one of its rows."""
    num_dims = reader.u32()
    if num_dims > MAX_DIMS:
        raise reader.damaged(f"the tensor {name} has {num_dims:,} dimensions")
    shape = [reader.i64() for _ in range(num_dims)] or [1]
    if min(shape) < 1:
        raise reader.damaged(f"the tensor {name} has a dimension of {min(shape):,}")
    elements = math.prod(shape)
    if elements > INT64_MAX:
        raise reader.damaged(f"the tensor {name} has an absurd number of elements")
    return elements, shape[0]


def _padded(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment


def _quoted(name: str) -> str:
    return ascii(name if len(name) <= 64 else name[:61] + "...")
