"""Pipes, links and folders where the store's files are expected: nobody waits for them, nobody removes them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.kvcache.block import folder_name
from inference.kvcache.block_file import open_regular
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.kvcache.restore_rates import RestoreRates
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, cut_rows, hit, rows_of, store_tokens

# A test that waits for a pipe would wait for ever.
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
IDS = list(range(300))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    store = BlockStore(tmp_path / "kv", 10**9)
    store_tokens(store, IDS)
    yield store
    store.close(5)


def first_block(store: BlockStore) -> Path:
    (path,) = store.folder.glob("*/b-0000000-0000256-*.kv")
    return path


def is_pipe(path: Path) -> bool:
    return stat.S_ISFIFO(path.lstat().st_mode)


def use_everything(store: BlockStore) -> None:
    """All that might open, write or remove a block's file."""
    assert hit(store, IDS) == 0
    assert not store.store_block(FINGERPRINT, token_array(IDS), 0, 256, rows_of(IDS, 0, 256), cut_rows)
    assert store.verify().removed == 0
    store.set_reference("chat", FINGERPRINT, token_array(IDS))
    store.forget("chat")
    assert store.flush(5)
    store.prune(0)


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_a_pipe_named_like_a_block_is_neither_opened_nor_replaced_nor_removed(store: BlockStore) -> None:
    path = first_block(store)
    put_pipe(path)
    store.close(5)
    again = BlockStore(store.folder, 10**9)
    use_everything(again)
    assert is_pipe(path)
    again.close(5)


def test_a_pipe_that_takes_a_known_blocks_place_is_neither_waited_for_nor_removed(store: BlockStore) -> None:
    path = first_block(store)
    put_pipe(path)
    use_everything(store)
    assert is_pipe(path)


def test_a_pipe_is_not_evicted_for_the_block_it_took_the_place_of(store: BlockStore) -> None:
    path = first_block(store)
    put_pipe(path)
    store.prune(0)
    assert is_pipe(path)
    assert store.store_bytes == 0


@pytest.mark.parametrize("make", ["link", "folder"])
def test_a_link_or_a_folder_named_like_a_block_is_left_alone(
    store: BlockStore, tmp_path: Path, make: str
) -> None:
    path = first_block(store)
    elsewhere = path.rename(tmp_path / "elsewhere")
    content = elsewhere.read_bytes()
    if make == "link":
        path.symlink_to(elsewhere)
    else:
        path.mkdir()
    store.close(5)
    again = BlockStore(store.folder, 10**9)
    use_everything(again)
    assert path.is_symlink() if make == "link" else path.is_dir()
    assert elsewhere.read_bytes() == content
    again.close(5)


def test_wiping_removes_it_with_the_folder_that_is_the_stores_own(store: BlockStore) -> None:
    put_pipe(first_block(store))
    store.wipe()
    assert not (store.folder / folder_name(FINGERPRINT)).exists()


def test_pipes_in_place_of_the_stores_other_files_are_not_waited_for(store: BlockStore) -> None:
    store.set_reference("chat", FINGERPRINT, token_array(IDS))
    (reference,) = (store.folder / "owners").iterdir()
    store.close(5)
    rates, digests = store.folder / "rates.json", store.folder / "model-digests.json"
    put_pipe(reference)
    put_pipe(store.folder / "changes.log")
    os.mkfifo(rates)
    os.mkfifo(digests)
    again = BlockStore(store.folder, 10**9)
    assert hit(again, IDS) == 300
    assert again.bytes_written_total == 0
    again.prune(0)
    assert again.store_bytes == 0
    assert RestoreRates(rates, FINGERPRINT).prefill_tokens_per_s == pytest.approx(300)
    assert len(ModelDigests(digests).sha256([Path(__file__)])) == 64
    again.close(5)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="Not a regular file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(OSError, match="Not a regular file"):
        open_regular(Path(os.devnull))
