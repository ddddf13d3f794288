"""Files that are no models, and models with faults, are refused with a reason at next to no cost."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.llama import gguf_bytes
from inference.llama.gguf_header import InvalidGGUF, ModelFileMissing, read_gguf_header
from tests.handmade_gguf import (
    ARRAY,
    BOOL,
    F32,
    I32,
    MALFORMED,
    STRING,
    U8,
    U32,
    U64,
    array_of,
    entry,
    gguf,
    refusal,
    string,
    tensor,
    text,
    u32,
)
from tests.tiny_models import write_llama


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# --- files that other programs crashed on ------------------------------------------------------------

REASONS = {
    "empty": "model.gguf is empty: download it again",
    "a web page": "model.gguf is a web page, not a model: download it again",
    "wrong magic": "is not a GGUF model",
    "version 99": "has GGUF version 99, and this program knows 3: update Everwarm",
    "an empty key": "damaged (an empty metadata key)",
    "a key of 2^48 bytes": "a metadata key of 281,474,976,710,656 bytes",
    "a dimension of 0": "the tensor 'token_embd.weight' has a dimension of 0",
    "9 dimensions": "the tensor 'token_embd.weight' has 9 dimensions",
    "an alignment of 0": "its alignment is 0",
    "no attention heads": "has no attention heads (llama.attention.head_count is 0)",
    "an array of 2^60 values": "it claims 1,152,921,504,606,846,976",
    "duplicate keys": "the metadata key 'llama.context_length' is there twice",
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_file_is_refused_with_a_reason(model_path: Path, fault: str) -> None:
    assert REASONS[fault] in refusal(model_path, MALFORMED[fault])


@pytest.mark.parametrize("item_type", [U8, U64, STRING])
def test_an_array_of_2_to_the_60_values_of_any_size_is_refused(model_path: Path, item_type: int) -> None:
    reason = refusal(model_path, gguf(array_of("some.array", item_type, 2**60)))
    assert "it claims 1,152,921,504,606,846,976" in reason
    assert "in 'some.array'" in reason


# --- files that are not there, or no models ----------------------------------------------------------


def test_a_missing_file_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ModelFileMissing, match=r"gone\.gguf is not in .*: put it back"):
        read_gguf_header(tmp_path / "gone.gguf")


def test_a_path_through_a_file_is_missing(model_path: Path) -> None:
    model_path.write_bytes(gguf())
    with pytest.raises(ModelFileMissing):
        read_gguf_header(model_path / "inner.gguf")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder, not a model" in refusal(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_refused_without_waiting_for_a_writer(model_path: Path) -> None:
    os.mkfifo(model_path)
    assert "is not a regular file" in refusal(model_path)


def test_a_file_that_may_not_be_read_is_refused(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Permissions do not bind root, who may well run the tests.
    def denied(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    model_path.write_bytes(gguf())
    monkeypatch.setattr(Path, "open", denied)
    assert "may not be read by this user" in refusal(model_path)


def test_a_failing_disk_is_told(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_args: object, **_options: object) -> None:
        raise OSError(5, "Input/output error")

    model_path.write_bytes(gguf())
    monkeypatch.setattr(Path, "open", failing)
    assert "could not be read (Input/output error)" in refusal(model_path)


def test_a_file_that_shrinks_while_it_is_read_is_refused(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shrinking(path: Path, *args: Any, **options: Any) -> IO[Any]:
        os.truncate(path, 10)
        return open(path, *args, **options)

    model_path.write_bytes(gguf())
    monkeypatch.setattr(Path, "open", shrinking)
    assert "ends inside its header" in refusal(model_path)


def test_a_path_with_a_null_byte_is_refused() -> None:
    assert "is no possible name of a file" in refusal(Path("mo\0del.gguf"))


def test_a_line_end_in_the_name_stays_out_of_the_message(tmp_path: Path) -> None:
    assert r"mo\ndel.gguf is not in" in refusal(tmp_path / "mo\ndel.gguf")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"Dear reader, this is no model.\n" * 40, "is a text file, not a model"),
        ("Grüße, 世界\n".encode() * 60, "is a text file, not a model"),
        (b"PK\x03\x04\x14\x00\x00\x00\x08\x00" * 9, "is a zip archive, not a model"),
        (struct.pack("<Q", 60) + b'{"__metadata__":{"format":"pt"}}', "is a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "only points to a model (Git LFS)"),
        (b"lmgg" + bytes(100), "is a model in a format older than GGUF"),
        (bytes(4096), "begins with nothing but zeros"),
        (b"\x7fELF\x02\x01\x01\x00" * 9, "is not a GGUF model"),
        (b"GG", "is a text file, not a model"),
    ],
)
def test_another_kind_of_file_is_named(model_path: Path, content: bytes, reason: str) -> None:
    assert reason in refusal(model_path, content)


def test_version_1_is_refused(model_path: Path) -> None:
    assert "has GGUF version 1, which is no longer supported" in refusal(model_path, gguf(version=1))


def test_a_big_endian_file_is_refused(model_path: Path) -> None:
    assert "is made for big-endian computers" in refusal(model_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))


def test_a_projector_is_not_a_chat_model(model_path: Path) -> None:
    reason = refusal(model_path, gguf(architecture=string("general.architecture", "clip")))
    assert "is the image or sound part of a model, not a chat model" in reason


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("adapter", "its kind is adapter"), ("mmproj", "image or sound part"), ("%\n", "unknown")],
)
def test_an_adapter_is_not_a_chat_model(model_path: Path, kind: str, reason: str) -> None:
    assert reason in refusal(model_path, gguf(string("general.type", kind)))


def test_an_embedding_model_is_not_a_chat_model(model_path: Path) -> None:
    assert "is not a chat model" in refusal(model_path, gguf(entry("llama.attention.causal", BOOL, b"\0")))


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ("architecture", "does not say which architecture"),
        ("tokenizer", "has no tokenizer"),
        ("tokens", "has no tokenizer"),
        ("context_length", "llama.context_length is missing"),
        ("embedding_length", "llama.embedding_length is missing"),
        ("block_count", "llama.block_count is missing"),
        ("head_count", "has no attention heads"),
    ],
)
def test_a_file_without_what_a_chat_model_needs_is_refused(
    model_path: Path, without: str, reason: str
) -> None:
    assert reason in refusal(model_path, gguf(without=without))


def test_a_vocabulary_without_weights_is_refused(model_path: Path) -> None:
    assert "holds a vocabulary but no model" in refusal(model_path, gguf(tensors=[], data=b""))


# --- damaged metadata --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"block_count": u32("llama.block_count", 0)}, "llama.block_count is 0"),
        ({"block_count": u32("llama.block_count", 513)}, "llama.block_count is 513"),
        ({"embedding_length": u32("llama.embedding_length", 0)}, "llama.embedding_length is 0"),
        ({"context_length": u32("llama.context_length", 2**32 - 1)}, "llama.context_length is 4294967295"),
        ({"context_length": string("llama.context_length", "8k")}, "llama.context_length is no whole number"),
        ({"context_length": entry("llama.context_length", BOOL, b"\1")}, "llama.context_length is True"),
        ({"tokens": array_of("tokenizer.ggml.tokens", U8, 2, b"ab")}, "has an empty vocabulary"),
        ({"tokens": array_of("tokenizer.ggml.tokens", STRING, 0)}, "has an empty vocabulary"),
        (
            {"tokens": array_of("tokenizer.ggml.tokens", STRING, 3, text("a") + text("b") + text("a"))},
            "its vocabulary has the same token twice",
        ),
        (
            {"head_count": array_of("llama.attention.head_count", U32, 2, struct.pack("<II", 2, 2))},
            "llama.attention.head_count has 2 values for 1 layers",
        ),
        (
            {"head_count": array_of("llama.attention.head_count", I32, 1, struct.pack("<i", -1))},
            "llama.attention.head_count has an impossible value",
        ),
        (
            {"head_count": array_of("llama.attention.head_count", F32, 1, struct.pack("<f", 2))},
            "has an array of float32 where whole numbers belong",
        ),
    ],
)
def test_impossible_values_are_refused(model_path: Path, faults: dict[str, bytes], reason: str) -> None:
    assert reason in refusal(model_path, gguf(**faults))


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (array_of("a", ARRAY, 1, struct.pack("<IQ", U8, 0)), "has an array of arrays in 'a'"),
        (array_of("a", 13, 1, b"\0"), "unknown type of value 13 in 'a'"),
        (entry("a", 13, b"\0"), "unknown type of value 13 for 'a'"),
        (entry("a", STRING, struct.pack("<Q", 2**50)), "ends inside its header"),
        (entry("a", STRING, struct.pack("<Q", 2**64 - 1)), "ends inside its header"),
        (array_of("a", STRING, 2, struct.pack("<Q", 2**64 - 1)), "ends inside its header"),
        (array_of("a", U64, 40), "ends inside its header"),
        (u32("general.alignment", 33), "its alignment is 33, not a power of two"),
        (string("general.alignment", "32"), "its alignment is no number"),
        (u32("split.count", 1_001), "it claims to be split into 1,001 parts"),
        (u32("llama.expert_count", 1025), "llama.expert_count is 1,025"),
        (u32("llama.expert_count", 8), "llama.expert_used_count is 0 of 8"),
        (u32("llama.attention.key_length", 0), "llama.attention.key_length is 0"),
        (string("llama.rope.scaling.type", "spiral"), "llama.rope.scaling.type is unknown"),
    ],
)
def test_damaged_metadata_is_refused(model_path: Path, extra: bytes, reason: str) -> None:
    assert reason in refusal(model_path, gguf(extra))


def test_a_token_of_a_megabyte_is_refused(model_path: Path) -> None:
    tokens = array_of("tokenizer.ggml.tokens", STRING, 2, text("a") + text("b" * 1_000_000))
    assert "a string of 1,000,000 bytes where a word belongs" in refusal(model_path, gguf(tokens=tokens))


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"num_keys": 2**60}, "it claims 1,152,921,504,606,846,976 metadata keys"),
        ({"num_tensors": 2**60}, "it claims 1,152,921,504,606,846,976 tensors"),
        ({"num_keys": 4_000}, "is damaged"),
    ],
)
def test_absurd_counts_are_refused(model_path: Path, counts: dict[str, int], reason: str) -> None:
    assert reason in refusal(model_path, gguf(**counts))  # type: ignore[arg-type]


def test_an_absurd_amount_of_text_is_refused(model_path: Path) -> None:
    content = gguf(*(string(f"text.{number}", "x" * 500_000) for number in range(10)))
    assert "an absurd amount of text" in refusal(model_path, content)


def test_no_more_of_a_file_is_read_than_the_limit(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_bytes, "MAX_BYTES_READ", 1 << 20)
    strings = text("x" * 300_000) * 8
    assert "an absurdly long header" in refusal(model_path, gguf(array_of("a", STRING, 8, strings)))


# --- damaged tensors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([tensor(dims=(8, -4))], "has a dimension of -4"),
        ([tensor(dims=(2**40, 2**40))], "has an absurd number of elements"),
        ([tensor(dims=(), n_dims=2**32 - 1)], "has 4,294,967,295 dimensions"),
        ([tensor(type_id=4)], "has the unknown tensor type 4 ('token_embd.weight')"),
        ([tensor(type_id=1_000)], "has the unknown tensor type 1000"),
        ([tensor(type_id=2, dims=(8, 4))], "are not whole blocks of Q4_0"),
        ([tensor(offset=7)], "is not aligned to 32 bytes"),
        ([tensor(offset=2**63)], "is not where it should be"),
        ([tensor("a"), tensor("b", offset=256)], "the tensor 'b' is not where it should be"),
        ([tensor("a", offset=128), tensor("b")], "the tensor 'a' is not where it should be"),
        ([tensor("a"), tensor("a", offset=128)], "the tensor 'a' is there twice"),
        ([tensor("a" * 64)], "a tensor name of 64 bytes"),
    ],
)
def test_damaged_tensors_are_refused(model_path: Path, tensors: list[bytes], reason: str) -> None:
    assert reason in refusal(model_path, gguf(tensors=tensors))


def test_a_file_cut_in_half_says_how_many_bytes_are_missing(model_path: Path) -> None:
    content = write_llama(model_path).read_bytes()
    half = len(content) // 2
    missing_bytes = len(content) - half
    expected = f"model.gguf is cut off: {missing_bytes:,} bytes are missing at its end: download it again"
    assert refusal(model_path, content[:half]) == expected


# --- whatever else may happen to a file --------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), max_size=6),
    kept_permille=st.just(1000) | st.integers(0, 1000),
)
def test_a_changed_or_cut_file_is_read_or_refused_and_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], kept_permille: int
) -> None:
    content = bytearray(gguf(u32("general.alignment", 32), string("general.name", "A name")))
    for position, value in changes:
        content[position % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(content[: len(content) * kept_permille // 1000])
    message = ""
    try:
        read_gguf_header(path)
    except InvalidGGUF as refused:
        message = str(refused)
    assert message.isprintable()
