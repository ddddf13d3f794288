import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.kvcache.block import BlockHash, block_name, folder_name
from inference.kvcache.block_file import (
    HEADER_BYTES,
    VERSION,
    DamagedFile,
    NewerVersion,
    encode_head,
    file_bytes,
    read_header_and_tokens,
    read_payload,
    remove_abandoned_files,
    write_file,
)
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.read_buffers import ReadBuffers
from inference.kvcache.reuse import token_array

FINGERPRINT = Fingerprint(bytes(range(32)))
NAME = block_name(0, 3, 5, BlockHash("a" * 32), BlockHash("b" * 32))
TOKENS = token_array([5, 6, 7])
PAYLOAD = np.arange(40, dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / folder_name(FINGERPRINT)
    folder.mkdir()
    path = folder / NAME
    write_file(path, encode_head(FINGERPRINT, NAME, TOKENS, PAYLOAD), PAYLOAD.data)
    return path


def read_back(path: Path) -> bytes:
    """Everything a restore uses; raises what a restore would."""
    header, tokens = read_header_and_tokens(path)
    payload, _ = read_payload(str(path), ReadBuffers())
    return header.fingerprint + tokens.tobytes() + payload.tobytes()


@given(tokens=st.lists(st.integers(0, 2**31 - 1), max_size=256), content=st.binary(max_size=200))
@settings(max_examples=50)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[int], content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("f") / folder_name(FINGERPRINT)
    folder.mkdir()
    payload = np.frombuffer(content, dtype=np.uint8)
    head = encode_head(FINGERPRINT, NAME, token_array(tokens), payload)
    write_file(folder / NAME, head, payload.data)
    assert read_back(folder / NAME) == FINGERPRINT + token_array(tokens).tobytes() + content
    assert (folder / NAME).stat().st_size == file_bytes(len(tokens), len(content))


def test_the_header_is_pinned() -> None:
    head = encode_head(FINGERPRINT, NAME, TOKENS, PAYLOAD)
    assert (HEADER_BYTES, VERSION) == (196, 1)
    assert head[:12] == b"EWKVSTOR" + struct.pack("<I", 1)
    assert head[16:48] == FINGERPRINT
    assert head[48:144] == NAME.encode().ljust(96, b"\0")
    assert head[144:156] == struct.pack("<IQ", 3, 40)
    assert head[HEADER_BYTES:] == struct.pack("<3i", 5, 6, 7)


def test_every_flipped_byte_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :])
        with pytest.raises(DamagedFile):
            read_back(path)


def test_every_truncation_is_noticed(path: Path) -> None:
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedFile):
            read_back(path)


def test_bytes_behind_the_end_are_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00")
    with pytest.raises(DamagedFile, match="bytes long instead of"):
        read_back(path)


def test_a_huge_file_of_zeros_is_refused_by_its_first_bytes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(DamagedFile, match="not a file of the KV store"):
        read_header_and_tokens(path)


def test_a_renamed_file_is_noticed(path: Path) -> None:
    other = path.with_name(block_name(0, 3, 5, BlockHash("a" * 32), BlockHash("c" * 32)))
    path.rename(other)
    with pytest.raises(DamagedFile, match="not the file that its name says"):
        read_back(other)


def test_a_file_in_another_fingerprints_folder_is_noticed(path: Path) -> None:
    other = path.parent.with_name("0" * 32) / path.name
    other.parent.mkdir()
    path.rename(other)
    with pytest.raises(DamagedFile, match="not the file that its name says"):
        read_back(other)


def test_a_later_version_is_told_from_damage(path: Path) -> None:
    preamble = struct.pack("<8sI", b"EWKVSTOR", VERSION + 1)
    path.write_bytes(preamble + struct.pack("<I", xxhash.xxh32_intdigest(preamble)) + b"whatever comes")
    with pytest.raises(NewerVersion):
        read_back(path)


def test_an_earlier_version_counts_as_damaged(path: Path) -> None:
    preamble = struct.pack("<8sI", b"EWKVSTOR", VERSION - 1)
    path.write_bytes(preamble + struct.pack("<I", xxhash.xxh32_intdigest(preamble)) + b"whatever was")
    with pytest.raises(DamagedFile, match="no longer read"):
        read_back(path)


def test_a_file_that_cannot_take_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_file(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_files_are_the_owners_only(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_temporary_files_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    abandoned = [tmp_path / f".tmp-{dead.pid}-x", tmp_path / f".tmp-{os.getpid()}-x", tmp_path / ".tmp-junk"]
    of_yesterday, in_use = tmp_path / f".tmp-{os.getppid()}-x", tmp_path / f".tmp-{os.getppid()}-y"
    for path in (*abandoned, of_yesterday, in_use):
        path.touch()
    os.utime(of_yesterday, (0, 0))
    remove_abandoned_files(tmp_path, os.listdir(tmp_path))
    assert list(tmp_path.iterdir()) == [in_use]
