from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.kvcache.checkpoint_file import (
    DamagedCheckpoint,
    StateBytes,
    checkpoint_name,
    decode_header,
    encode_prefix,
    mapped_state,
    read_header_and_tokens,
)
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import token_array

FINGERPRINT = Fingerprint(bytes(range(32)))
TOKENS = token_array([5, 6, 7])


def state_of(length: int) -> StateBytes:
    return np.arange(length, dtype=np.uint64).astype(np.uint8)


def write(path: Path, length: int = 40) -> bytes:
    state = state_of(length)
    data = encode_prefix(FINGERPRINT, TOKENS, 1, state) + state.tobytes()
    path.write_bytes(data)
    return data


def read_back(path: Path) -> bytes:
    """Everything a restore uses; raises what a restore would."""
    header, tokens = read_header_and_tokens(path)
    with mapped_state(path, header) as state:
        return header.fingerprint + tokens.tobytes() + header.pos_min.to_bytes(4, "little") + state.tobytes()


@given(
    tokens=st.lists(st.integers(0, 2**31 - 1), max_size=50),
    pos_min=st.integers(0, 2**32 - 1),
    state=st.binary(max_size=200),
)
@settings(max_examples=50)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[int], pos_min: int, state: bytes
) -> None:
    path = tmp_path_factory.mktemp("f") / "a.kvseq"
    array = np.frombuffer(state, dtype=np.uint8)
    path.write_bytes(encode_prefix(FINGERPRINT, token_array(tokens), pos_min, array) + state)
    header, token_ids = read_header_and_tokens(path)
    assert (header.fingerprint, header.num_tokens, header.pos_min) == (FINGERPRINT, len(tokens), pos_min)
    assert token_ids.tolist() == tokens
    with mapped_state(path, header) as mapped:
        assert mapped.tobytes() == state


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.kvseq"
    data = write(path)
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :])
        with pytest.raises(DamagedCheckpoint):
            read_back(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.kvseq"
    data = write(path)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedCheckpoint):
            read_back(path)


def test_bytes_behind_the_end_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.kvseq"
    path.write_bytes(write(path) + b"\x00")
    with pytest.raises(DamagedCheckpoint, match="bytes long instead of"):
        read_back(path)


def test_a_huge_file_of_zeros_is_refused_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "zeros.kvseq"
    with path.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(DamagedCheckpoint, match="not a KV state file"):
        read_header_and_tokens(path)


def test_a_file_swapped_after_it_was_indexed_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.kvseq"
    write(path)
    header, _ = read_header_and_tokens(path)
    write(path, length=41)
    with pytest.raises(DamagedCheckpoint, match="not the file that was indexed"), mapped_state(path, header):
        pass


def test_names_tell_fingerprints_and_tokens_apart() -> None:
    other = Fingerprint(bytes(32))
    names = {
        checkpoint_name(f, t)
        for f in (FINGERPRINT, other)
        for t in (TOKENS, TOKENS[:2], token_array([5, 6, 8]))
    }
    assert len(names) == 6


def test_a_header_names_its_own_size() -> None:
    state = state_of(10)
    prefix = encode_prefix(FINGERPRINT, TOKENS, 0, state)
    assert decode_header(prefix).file_bytes == len(prefix) + 10
