"""Names and hashes are what stores on users' disks are made of: they are pinned, letter by letter."""

import hashlib

import pytest

from inference.kvcache.block import (
    Block,
    BlockHash,
    Checkpoint,
    StoredEntry,
    WholeSequence,
    block_name,
    checkpoint_name,
    entry_from_name,
    folder_name,
    prefix_hashes,
    whole_name,
)
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import token_array

FINGERPRINT = Fingerprint(bytes(range(32)))
A, B = BlockHash("a" * 32), BlockHash("0123456789abcdef" * 2)
PINNED_HASHES = [
    "f39a2cad58411cd49f577e5086b8031f",
    "859479710a427008f3c9d28ad45ed729",
    "b641df8d7b32b04b2cabac80dabdfcd0",
]


def test_a_prefix_hash_is_blake2b_of_the_fingerprint_and_the_ids() -> None:
    ids = token_array([1, 2, 70000])
    by_hand = hashlib.blake2b(
        bytes(range(32)) + b"\1\0\0\0" + b"\2\0\0\0" + (70000).to_bytes(4, "little"), digest_size=16
    )
    assert list(prefix_hashes(FINGERPRINT, ids, [3])) == [by_hand.hexdigest()]


def test_prefix_hashes_are_pinned() -> None:
    assert list(prefix_hashes(FINGERPRINT, token_array([1, 2, 70000]), [0, 1, 3])) == PINNED_HASHES


def test_a_hash_in_one_pass_equals_the_hash_alone() -> None:
    ids = token_array(range(1000))
    ends = [0, 1, 255, 256, 1000]
    assert list(prefix_hashes(FINGERPRINT, ids, ends)) == [
        hash_alone for end in ends for hash_alone in prefix_hashes(FINGERPRINT, ids, [end])
    ]


def test_a_blocks_name_is_pinned_and_tells_all() -> None:
    name = block_name(256, 512, 151643, A, B)
    assert name == f"b-0000256-0000512-0151643-{'a' * 32}-0123456789abcdef0123456789abcdef.kv"
    block = entry_from_name("f", name, 10, 20)
    assert isinstance(block, Block)
    assert (block.start, block.end, block.first_token_id) == (256, 512, 151643)
    assert (block.parent_hash, block.hash, block.file_bytes, block.last_access_ns) == (A, B, 10, 20)


@pytest.mark.parametrize("kind", ["system", "user", "turn"])
def test_a_checkpoints_name_is_pinned_and_tells_all(kind: str) -> None:
    name = checkpoint_name(300, kind, B)  # type: ignore[arg-type]
    assert name == f"c-0000300-{kind}-0123456789abcdef0123456789abcdef.kv"
    checkpoint = entry_from_name("f", name, 10, 20)
    assert isinstance(checkpoint, Checkpoint)
    assert (checkpoint.end, checkpoint.kind, checkpoint.hash) == (300, kind, B)


def test_a_whole_sequences_name_is_pinned_and_tells_all() -> None:
    name = whole_name(300, 44, B)
    assert name == "w-0000300-0000044-0123456789abcdef0123456789abcdef.kv"
    whole = entry_from_name("f", name, 10, 20)
    assert isinstance(whole, WholeSequence)
    assert (whole.end, whole.pos_min, whole.hash) == (300, 44, B)


def test_a_fingerprints_folder_is_pinned() -> None:
    assert folder_name(FINGERPRINT) == "000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "changes.log",
        ".tmp-1-00000000",
        block_name(0, 1, 2, A, B)[:-1],
        block_name(0, 1, 2, A, B) + "x",
        block_name(0, 1, 2, A, B).upper(),
        checkpoint_name(1, "turn", A).replace("turn", "tail"),
        whole_name(1, 0, A).replace("-0000000-", "-"),
    ],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert entry_from_name("f", name, 0, 0) is None


@pytest.mark.parametrize("number", [-1, 10**7])
def test_a_number_that_would_break_the_names_form_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        block_name(0, number, 0, A, B)


def test_entries_are_compared_by_identity() -> None:
    first, second = (entry_from_name("f", block_name(0, 1, 2, A, B), 0, 0) for _ in range(2))
    assert isinstance(first, StoredEntry)
    assert first != second
