from pathlib import Path

import numpy as np
import pytest

from inference.kvcache.block import BlockHash, block_name, folder_name, prefix_hashes, whole_name
from inference.kvcache.block_file import encode_head, write_file
from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import ReuseRule, token_array
from inference.kvcache.store_verification import VerifyReport
from tests.inference.kvcache.prefix_rows import FINGERPRINT, hit, store_tokens, whole_state


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path, 10**9)


def test_a_sound_store_is_all_checked_and_nothing_removed(store: BlockStore) -> None:
    ids = list(range(600))
    store_tokens(store, ids)
    store.store_checkpoint(FINGERPRINT, token_array(ids), 600, whole_state(ids), kind="turn")
    store.store_whole(FINGERPRINT, token_array([1, 2]), whole_state([1, 2]), pos_min=0, rule=ReuseRule())
    assert store.flush(5)
    assert store.verify() == VerifyReport(checked=5, removed=0, orphans=0, newer=0)


def test_a_damaged_payload_is_removed_and_what_built_on_it_told_as_orphans(store: BlockStore) -> None:
    ids = list(range(768))
    store_tokens(store, ids)
    (path,) = store.folder.glob("*/b-0000256-*.kv")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert store.verify() == VerifyReport(checked=3, removed=1, orphans=1, newer=0)
    assert store.verify() == VerifyReport(checked=2, removed=0, orphans=1, newer=0)
    assert hit(store, ids) == 256


def put_by_hand(store: BlockStore, name: str, token_ids: list[int]) -> Path:
    rows = np.zeros(8, dtype=np.uint8)
    path = store.folder / folder_name(FINGERPRINT) / name
    path.parent.mkdir(exist_ok=True)
    write_file(path, encode_head(FINGERPRINT, name, token_array(token_ids), rows), rows.data)
    return path


def test_blocks_whose_ids_do_not_give_the_hashes_in_their_names_are_removed(store: BlockStore) -> None:
    root, one, three = prefix_hashes(FINGERPRINT, token_array([1, 2, 3]), [0, 1, 3])
    wrong = BlockHash("0" * 32)
    store_tokens(store, [1, 2, 3])
    misnamed = [
        put_by_hand(store, block_name(3, 4, 9, three, wrong), [9]),
        put_by_hand(store, block_name(0, 1, 1, wrong, one), [1]),
        put_by_hand(store, block_name(0, 2, 1, root, one), [1]),
    ]
    assert store.verify() == VerifyReport(checked=4, removed=3, orphans=0, newer=0)
    assert not any(path.exists() for path in misnamed)


def test_a_whole_sequence_whose_ids_do_not_give_its_hash_is_removed(store: BlockStore) -> None:
    put_by_hand(store, whole_name(2, 0, BlockHash("0" * 32)), [1, 2])
    assert store.verify() == VerifyReport(checked=1, removed=1, orphans=0, newer=0)


def test_verifying_is_no_use_of_what_is_verified(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    (path,) = store.folder.glob("*/b-*.kv")
    before = path.stat().st_mtime_ns
    store.verify()
    assert path.stat().st_mtime_ns == before


def test_files_put_there_by_hand_are_checked_too(store: BlockStore, tmp_path: Path) -> None:
    elsewhere = BlockStore(tmp_path / "elsewhere", 10**9)
    store_tokens(elsewhere, [4, 5])
    (source,) = elsewhere.folder.glob("*/b-*.kv")
    folder = store.folder / source.parent.name
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes())
    assert store.verify() == VerifyReport(checked=1, removed=0, orphans=0, newer=0)
    assert hit(store, [4, 5]) == 2
