"""Several payloads in turn, the next one read while one is used."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.kvcache.block import Block
from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, rows_of, store_tokens

IDS = list(range(100, 1000))
CUTS = (50, 300)


def stored_blocks(store: BlockStore) -> list[Block]:
    store_tokens(store, IDS, cuts=CUTS)
    match = store.match_prefix(FINGERPRINT, token_array(IDS), max_hit_length=len(IDS))
    assert match.num_tokens == len(IDS)
    return [matched.block for matched in match.blocks]


def rows_of_block(block: Block) -> bytes:
    return rows_of(IDS, block.start, block.end).tobytes()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_each_payload_comes_in_its_turn(store: BlockStore, count: int) -> None:
    blocks = stored_blocks(store)[:count]
    payloads = [payload.tobytes() for payload in store.each_payload(blocks) if payload is not None]
    assert payloads == [rows_of_block(block) for block in blocks]
    assert [block.ref_count for block in blocks] == [0] * count
    assert store.bytes_read == sum(block.file_bytes for block in blocks)


def test_while_one_is_used_the_next_is_read_and_no_more(store: BlockStore) -> None:
    first, second, third, *_ = blocks = stored_blocks(store)
    stream = store.each_payload(blocks)
    payload = next(stream)
    wait_until(lambda: store.bytes_read == first.file_bytes + second.file_bytes)
    assert (first.ref_count, second.ref_count, third.ref_count) == (1, 1, 0)
    assert payload is not None
    assert payload.tobytes() == rows_of_block(first)
    stream.close()
    assert [block.ref_count for block in blocks] == [0] * len(blocks)


def test_none_is_read_before_the_first_is_asked_for(store: BlockStore) -> None:
    store.each_payload(stored_blocks(store)).close()
    assert store.bytes_read == 0


@settings(max_examples=30)
@given(
    damaged=st.sets(st.integers(0, 4)),
    gone=st.sets(st.integers(0, 4)),
    stop_after=st.integers(0, 5) | st.none(),
)
def test_damaged_and_missing_ones_are_none_at_their_place(
    tmp_path_factory: pytest.TempPathFactory, damaged: set[int], gone: set[int], stop_after: int | None
) -> None:
    store = BlockStore(Path(tmp_path_factory.mktemp("kv")), 10**9)
    blocks = stored_blocks(store)
    for number in damaged | gone:
        path = store.folder / str(blocks[number])
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        if number in gone:
            path.unlink()
    stream = store.each_payload(blocks)
    for number, block in enumerate(blocks[:stop_after]):
        payload = next(stream)
        expected = None if number in damaged | gone else rows_of_block(block)
        assert (None if payload is None else payload.tobytes()) == expected
    stream.close()
    assert [block.ref_count for block in blocks] == [0] * len(blocks)
    store.close(5)


def test_what_is_checked_leaves_the_store_where_it_is_damaged(store: BlockStore) -> None:
    blocks = stored_blocks(store)
    for block in blocks[1:3]:
        path = store.folder / str(block)
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    store.check(blocks)
    assert store.num_blocks == len(blocks) - 2
    assert store.verify().removed == 0
