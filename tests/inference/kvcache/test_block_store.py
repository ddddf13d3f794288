"""The store's behaviour, one at a time; rows that are told by their prefix stand for states."""

import errno
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import xxhash

from inference.kvcache.block_file import StateBytes
from inference.kvcache.block_store import BlockStore
from inference.kvcache.prefix_match import MissCause
from inference.kvcache.reuse import ReuseRule, token_array
from inference.kvcache.store_verification import VerifyReport
from tests.inference.kvcache.prefix_rows import (
    FINGERPRINT,
    OTHER,
    cut_rows,
    hit,
    reopened,
    rows_of,
    store_tokens,
    stored_spans,
    whole_state,
)


def miss(store: BlockStore, ids: list[int]) -> MissCause | None:
    return store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=len(ids) - 1).first_difference


def checkpoint_ends(store: BlockStore, ids: list[int]) -> list[int]:
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=len(ids) - 1)
    for checkpoint in match.checkpoints:
        with store.open_payload(checkpoint) as payload:
            assert payload is not None
            assert payload.tobytes() == whole_state(ids[: checkpoint.end]).tobytes()
    return [checkpoint.end for checkpoint in match.checkpoints]


def store_checkpoint(store: BlockStore, ids: list[int], kind: str = "turn") -> None:
    assert store.store_checkpoint(FINGERPRINT, token_array(ids), len(ids), whole_state(ids), kind=kind)  # type: ignore[arg-type]
    assert store.flush(5)


def test_a_prompt_is_cut_every_256_tokens_and_at_ends_of_messages(store: BlockStore) -> None:
    missing = store.missing_ranges(FINGERPRINT, token_array(range(700)), cuts=[300, 10, 10, 0, 700, 900])
    assert [(r.start, r.end) for r in missing] == [(0, 10), (10, 266), (266, 300), (300, 556), (556, 700)]


def test_what_was_stored_is_found_after_a_restart(store: BlockStore) -> None:
    ids = list(range(600))
    store_tokens(store, ids, cuts=[40])
    assert hit(reopened(store), ids) == 600


def test_a_match_may_end_inside_a_block(store: BlockStore) -> None:
    store_tokens(store, list(range(100)))
    assert hit(store, [*range(60), 999, 1000]) == 60


def test_a_match_is_no_longer_than_asked_for(store: BlockStore) -> None:
    ids = list(range(512))
    store_tokens(store, ids)
    for length in (0, 1, 255, 256, 257, 511, 512):
        match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=length)
        assert match.num_tokens == sum(matched.num_tokens for matched in match.blocks) == length


def test_another_fingerprint_is_a_miss(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    assert hit(store, [1, 2, 3], OTHER) == 0
    store_tokens(store, [1, 2, 3], fingerprint=OTHER)
    assert hit(store, [1, 2, 3], OTHER) == 3


def test_nothing_is_stored_twice(store: BlockStore) -> None:
    ids = list(range(300))
    assert store_tokens(store, ids) == [(0, 256), (256, 300)]
    written = store.bytes_written
    assert store_tokens(store, ids) == []
    assert store.store_block(FINGERPRINT, token_array(ids), 0, 256, rows_of(ids, 0, 256), cut_rows)
    assert store.flush(5)
    assert store.bytes_written == written == store.store_bytes


def test_what_waits_to_be_written_is_not_missing_and_not_yet_a_match(store: BlockStore) -> None:
    ids, release = list(range(10)), threading.Event()
    store._writer.submit(lambda: release.wait(5))
    store_tokens(store, ids, flush=False)
    assert store.missing_ranges(FINGERPRINT, token_array(ids), []) == []
    assert store.missing_ranges(FINGERPRINT, token_array([*ids[:4], 99]), [])[0].start == 4
    assert hit(store, ids) == 0
    release.set()
    assert store.flush(5)
    assert hit(store, ids) == 10


def test_a_block_is_split_where_a_second_chat_leaves_it(store: BlockStore) -> None:
    first, second = list(range(256)), [*range(100), *range(500, 520)]
    store_tokens(store, first)
    assert store_tokens(store, second) == [(100, 120)]
    assert stored_spans(store) == [(0, 100), (100, 120), (100, 256)]
    assert (hit(store, first), hit(store, second)) == (256, 120)
    assert (hit(reopened(store), first), hit(store, second)) == (256, 120)


def test_ten_chats_of_one_system_prompt_store_it_once(store: BlockStore) -> None:
    system = list(range(2000))
    for chat in range(10):
        store_tokens(store, [*system, *range(10_000 + chat, 10_100 + chat)], cuts=[2000])
    unique_tokens = 2000 + 10 * 100
    assert store.stats().num_tokens == unique_tokens
    payload_bytes = 8 * unique_tokens
    # A real row is thousands of bytes, where these headers do not count.
    assert store.store_bytes - store.num_blocks * 196 - 4 * unique_tokens == payload_bytes


def test_a_block_whose_beginning_is_not_stored_is_dropped(store: BlockStore) -> None:
    ids = list(range(512))
    assert store.store_block(FINGERPRINT, token_array(ids), 256, 512, rows_of(ids, 256, 512), cut_rows)
    assert store.flush(5)
    assert (store.num_blocks, store.bytes_written) == (0, 0)
    assert len(store.missing_ranges(FINGERPRINT, token_array(ids), [])) == 2


def test_a_hole_is_filled_and_what_follows_it_used_again(store: BlockStore) -> None:
    ids = list(range(768))
    store_tokens(store, ids)
    (hole,) = store.folder.glob("*/b-0000256-*.kv")
    hole.unlink()
    store = reopened(store)
    assert hit(store, ids) == 256
    assert store_tokens(store, ids) == [(256, 512)]
    assert hit(store, ids) == 768


def test_a_block_that_nothing_leads_to_is_stored_anew_where_another_has_to_be_split_for_it(
    store: BlockStore,
) -> None:
    first, second = [1, 2, 3], [1, 2, 9, 9]
    store_tokens(store, first, cuts=[2])
    (beginning,) = store.folder.glob("*/b-0000000-*.kv")
    beginning.unlink()
    store = reopened(store)
    store_tokens(store, second)
    assert store_tokens(store, first) == [(2, 3)]
    assert stored_spans(store) == [(0, 2), (2, 3), (2, 4)]
    assert (hit(store, first), hit(store, second)) == (3, 4)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 5), (0, 257), (0, 301)])
def test_a_range_that_is_no_block_is_refused(store: BlockStore, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no block"):
        store.store_block(FINGERPRINT, token_array(range(300)), start, end, rows_of([1], 0, 1), cut_rows)


def test_a_row_cutter_that_fails_leaves_the_block_whole(store: BlockStore) -> None:
    def refuse(payload: StateBytes, first: int, last: int) -> StateBytes:
        raise ValueError("unknown layout")

    store_tokens(store, list(range(100)))
    ids = [*range(50), 999]
    assert store.store_block(FINGERPRINT, token_array(ids), 50, 51, rows_of(ids, 50, 51), refuse)
    assert store.flush(5)
    assert stored_spans(store) == [(0, 100)]
    assert (hit(store, list(range(100))), hit(store, ids)) == (100, 50)


def test_a_split_that_fails_halfway_leaves_the_block_whole(store: BlockStore) -> None:
    def fail_at_the_second_half(payload: StateBytes, first: int, last: int) -> StateBytes:
        if first > 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return cut_rows(payload, first, last)

    store_tokens(store, list(range(100)))
    ids = [*range(50), 999]
    rows = rows_of(ids, 50, 51)
    assert store.store_block(FINGERPRINT, token_array(ids), 50, 51, rows, fail_at_the_second_half)
    assert store.flush(5)
    assert stored_spans(store) == [(0, 100)]
    assert hit(store, list(range(100))) == 100


def test_checkpoints_are_found_with_and_without_blocks_and_at_their_position_only(store: BlockStore) -> None:
    ids = list(range(50))
    store_checkpoint(store, ids[:10], "system")
    store_checkpoint(store, ids[:30], "user")
    assert checkpoint_ends(store, [*ids[:31]]) == [10, 30]
    assert checkpoint_ends(store, ids[:30]) == [10]
    assert checkpoint_ends(store, [*ids[:20], 99, *ids[20:40]]) == [10]
    store_tokens(store, ids)
    assert checkpoint_ends(reopened(store), ids) == [10, 30]
    assert store.num_checkpoints == 2


def test_a_checkpoint_is_stored_once_whatever_it_is_called(store: BlockStore) -> None:
    store_checkpoint(store, [1, 2, 3], "system")
    store_checkpoint(store, [1, 2, 3], "turn")
    assert store.num_checkpoints == 1


def test_whole_sequences_follow_the_models_rule(store: BlockStore) -> None:
    def usable(ids: list[int], rule: ReuseRule) -> int:
        match = store.match_whole(FINGERPRINT, token_array(ids), rule, max_hit_length=len(ids) - 1)
        return match.num_cached_tokens if match else 0

    rule = ReuseRule(recurrent=True)
    assert store.store_whole(FINGERPRINT, token_array([1, 2]), whole_state([1, 2]), pos_min=0, rule=rule)
    ids = token_array([1, 2, 3, 4])
    assert store.store_whole(FINGERPRINT, ids, whole_state([1, 2, 3, 4]), pos_min=0, rule=rule)
    assert store.flush(5)
    assert store.stats().num_wholes == 2
    assert [usable([1, 2, 3, 9], r) for r in (rule, ReuseRule())] == [2, 3]
    assert store.store_whole(
        FINGERPRINT, token_array(range(1, 6)), whole_state([1]), pos_min=3, rule=ReuseRule()
    )
    assert store.flush(5)
    assert store.stats().num_wholes == 1
    assert [usable([1, 2, 3, 9], r) for r in (ReuseRule(n_swa=2), ReuseRule())] == [0, 3]


def test_a_miss_tells_the_first_token_that_differs(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3, 4, 5])
    assert miss(store, [1, 2, 9, 9]) == MissCause("different_token", 2, 9, 3)
    assert miss(store, [1, 2, 3, 4, 5, 9, 9]) == MissCause("nothing_stored", 5, 9)
    assert miss(store, [8, 8]) == MissCause("different_token", 0, 8, 1)
    assert miss(store, [1, 2, 3, 4]) is None


def test_a_miss_at_an_edge_between_blocks_tells_the_token_stored_last(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3], cuts=[2])
    assert miss(store, [1, 2, 9, 9]) == MissCause("different_token", 2, 9, 3)


def test_a_miss_tells_of_eviction_also_after_a_restart(store: BlockStore) -> None:
    ids = list(range(20))
    store_tokens(store, ids, cuts=[10])
    store.prune(store.store_bytes - 1)
    assert miss(store, ids) == MissCause("evicted", 10, 10)
    assert miss(store, [*ids[:10], 99, 99]) == MissCause("nothing_stored", 10, 99)
    assert miss(reopened(store), ids) == MissCause("evicted", 10, 10)


def test_an_evicted_checkpoint_is_told_too(store: BlockStore) -> None:
    store_checkpoint(store, [1, 2, 3])
    store.prune(0)
    assert miss(store, [1, 2, 3, 4]) == MissCause("evicted", 0, 1)


def test_files_deleted_behind_the_stores_back_are_misses(store: BlockStore) -> None:
    ids = list(range(600))
    store_tokens(store, ids)
    (middle,) = store.folder.glob("*/b-0000256-*.kv")
    middle.unlink()
    assert hit(store, ids) == 256
    assert store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=600).num_tokens == 256


def test_a_file_of_a_later_version_is_neither_used_nor_replaced_nor_removed(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    (path,) = store.folder.glob("*/b-*.kv")
    data = bytearray(path.read_bytes())
    preamble = b"EWKVSTOR" + (9).to_bytes(4, "little")
    data[:16] = preamble + xxhash.xxh32_intdigest(preamble).to_bytes(4, "little")
    path.write_bytes(data)
    later = path.read_bytes()
    store = reopened(store)
    assert hit(store, [1, 2, 3]) == 0
    assert not store.store_block(
        FINGERPRINT, token_array([1, 2, 3]), 0, 3, rows_of([1, 2, 3], 0, 3), cut_rows
    )
    for _ in range(2):
        assert store.verify() == VerifyReport(checked=0, removed=0, orphans=0, newer=1)
    assert store.store_bytes == 0
    assert path.read_bytes() == later


def test_what_another_process_stores_evicts_or_forgets_is_noticed(store: BlockStore) -> None:
    other, ids = BlockStore(store.folder, 10**9), list(range(300))
    store_tokens(other, ids)
    assert hit(store, ids) == 300
    assert store.store_bytes == other.store_bytes
    store.prune(0)
    assert hit(other, ids) == 0
    other.set_reference("chat", FINGERPRINT, token_array(ids))
    store_tokens(store, ids)
    other.forget("chat")
    assert other.flush(5)
    assert hit(store, ids) == 0


def test_two_processes_that_split_one_block_differently_lose_nothing(store: BlockStore) -> None:
    ids = list(range(200))
    left_early, left_late = [*range(50), 900, 901], [*range(120), 800, 801]
    store_tokens(store, ids)
    (path,) = store.folder.glob("*/b-*.kv")
    data = path.read_bytes()
    other = BlockStore(store.folder, 10**9)
    store_tokens(store, left_early)
    # As if the other had opened the block just before the first removed it, and not listed the folder since.
    path.write_bytes(data)
    other._index.changes.mark_known()
    store_tokens(other, left_late)
    assert stored_spans(store) == [(0, 50), (0, 120), (50, 52), (50, 200), (120, 122), (120, 200)]
    other._index.refresh(forced=True)
    for opened in (store, other, reopened(store)):
        assert [hit(opened, prompt) for prompt in (ids, left_early, left_late)] == [200, 52, 122]


def test_a_state_that_the_library_refuses_is_removed(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3]), max_hit_length=3)
    store.reject(match.blocks[0].block)
    assert stored_spans(store) == []
    assert hit(store, [1, 2, 3]) == 0


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_everything_is_the_owners_only(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    store.set_reference("chat", FINGERPRINT, token_array([1, 2, 3]))
    for path in (store.folder, *store.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_folder_that_cannot_be_used_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file")
    with pytest.raises(OSError):
        BlockStore(tmp_path / "kv", 10**9)


def test_payloads_may_be_of_any_length(store: BlockStore) -> None:
    payload = np.zeros(1 << 20, dtype=np.uint8)
    assert store.store_block(FINGERPRINT, token_array([1]), 0, 1, payload, cut_rows)
    assert store.flush(5)
    match = store.match_prefix(FINGERPRINT, token_array([1]), max_hit_length=1)
    with store.open_payload(match.blocks[0].block) as read:
        assert read is not None
        assert read.size == 1 << 20


@pytest.mark.parametrize("gone", ["removed by hand", "evicted by another process"])
def test_what_is_gone_between_look_up_and_use_is_a_miss_and_leaves_the_index(
    store: BlockStore, gone: str
) -> None:
    # Reported as abetlen/llama-cpp-python#348: the look-up's answer was used without a look at it.
    ids = list(range(600))
    store_tokens(store, ids)
    store.store_checkpoint(FINGERPRINT, token_array(ids), 600, whole_state(ids), kind="turn")
    assert store.flush(5)
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=600)
    if gone == "removed by hand":
        for path in store.folder.glob("*/*.kv"):
            path.unlink()
    else:
        # Used an hour ago: what another process used lately is spared.
        for path in store.folder.glob("*/*.kv"):
            os.utime(path, ns=(10**9, 10**9))
        BlockStore(store.folder, 10**9).prune(0)
    assert list(store.folder.glob("*/*.kv")) == []
    # Not because the folder was read again, which a look-up does where it notices a change.
    assert (store.num_blocks, store.num_checkpoints) == (3, 1)
    for entry in (*(matched.block for matched in match.blocks), *match.checkpoints):
        with store.open_payload(entry) as payload:
            assert payload is None
    assert (store.num_blocks, store.num_checkpoints, store.store_bytes) == (0, 0, 0)
    assert hit(store, ids) == 0
    store_tokens(store, ids)
    assert hit(store, ids) == 600
