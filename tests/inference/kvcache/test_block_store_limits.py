"""Budget, counters, a slow disk, pins and wiping."""

import os
import threading
import time
from pathlib import Path

from inference.kvcache.block_store import BlockStore
from inference.kvcache.entry_intake import STORE_FULL
from inference.kvcache.prefix_match import BlockRange
from inference.kvcache.reuse import token_array
from inference.kvcache.store_writer import DISK_TOO_SLOW
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


def test_opening_an_entry_notes_its_use_at_most_once_a_minute(store: BlockStore) -> None:
    store_tokens(store, [1, 2, 3])
    (path,) = store.folder.glob("*/b-*.kv")
    ten_seconds_ago = time.time_ns() - 10 * 10**9
    os.utime(path, ns=(ten_seconds_ago, ten_seconds_ago))
    store = reopened(store)
    hit(store, [1, 2, 3])
    assert path.stat().st_mtime_ns == ten_seconds_ago
    os.utime(path, ns=(10**9, 10**9))
    store = reopened(store)
    hit(store, [1, 2, 3])
    assert path.stat().st_mtime_ns > ten_seconds_ago


def test_bytes_written_are_counted_across_restarts_and_processes(store: BlockStore) -> None:
    store_tokens(store, list(range(300)))
    other = BlockStore(store.folder, 10**9)
    store_tokens(other, list(range(1000, 1300)))
    total = store.bytes_written + other.bytes_written
    assert total == store.stats().store_bytes
    assert store.bytes_written_today == store.bytes_written_total == other.bytes_written_total == total
    assert reopened(other).bytes_written_total == total
    (store.folder / "changes.log").unlink()
    assert reopened(store).bytes_written_total == 0


def test_bytes_read_are_those_of_the_files_opened(store: BlockStore) -> None:
    ids = list(range(300))
    store_tokens(store, ids)
    assert hit(store, ids[:100]) == 100
    assert store.bytes_read == next(store.folder.glob("*/b-0000000-*.kv")).stat().st_size


def test_a_slow_disk_loses_the_newest_and_says_so_once(tmp_path: Path) -> None:
    notices: list[str] = []
    store = BlockStore(tmp_path, 10**9, on_notice=notices.append, max_waiting_bytes=3000)
    release, ids = threading.Event(), list(range(1024))
    store._writer.submit(lambda: release.wait(5))
    accepted = [
        store.store_block(
            FINGERPRINT, token_array(ids), start, start + 256, rows_of(ids, start, start + 256), cut_rows
        )
        for start in range(0, 1024, 256)
    ]
    assert accepted == [True, False, False, False]
    assert notices == [DISK_TOO_SLOW]
    assert store.missing_ranges(FINGERPRINT, token_array(ids), [])[0] == BlockRange(256, 512)
    release.set()
    assert store.flush(5)
    assert hit(store, ids) == 256


def test_closing_waits_no_longer_than_told(store: BlockStore) -> None:
    release = threading.Event()
    store._writer.submit(lambda: release.wait(5))
    store_tokens(store, [1, 2, 3], flush=False)
    began = time.monotonic()
    store.close(0.05)
    assert time.monotonic() - began < 4
    release.set()
    assert stored_spans(store) == []


def test_a_small_budget_keeps_a_chats_beginning_and_says_so(tmp_path: Path) -> None:
    notices: list[str] = []
    store = BlockStore(tmp_path, 10_000, on_notice=notices.append)
    ids = list(range(2560))
    store_tokens(store, ids)
    assert store.store_bytes <= 10_000
    assert 256 <= hit(store, ids) < 1024
    assert store.bytes_written == store.store_bytes
    assert notices == [STORE_FULL]


def test_a_smaller_budget_takes_effect_at_once(store: BlockStore) -> None:
    store_tokens(store, list(range(1024)))
    store.budget_bytes = store.store_bytes // 2
    assert store.flush(5)
    assert 0 < store.store_bytes <= store.budget_bytes


def test_a_new_chat_takes_the_room_of_the_one_used_least_lately(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, 20_000)
    chats = [list(range(start, start + 512)) for start in range(0, 3000, 600)]
    for chat in chats:
        store_tokens(store, chat)
    assert hit(store, chats[-1]) == 512
    assert hit(store, chats[0]) < 512
    assert store.store_bytes <= 20_000


def test_what_is_stored_of_a_pinned_owner_is_never_evicted_until_it_is_unpinned(store: BlockStore) -> None:
    pinned, other = list(range(300)), list(range(1000, 1300))
    store.set_reference("pinned", FINGERPRINT, token_array(pinned[:280]))
    store.set_reference("other", FINGERPRINT, token_array(other))
    store.set_pins(["pinned"])
    store_tokens(store, pinned)
    store_tokens(store, other)
    store = reopened(store)
    store.prune(0)
    assert (hit(store, pinned), hit(store, other)) == (300, 0)
    store.set_pins([])
    store.prune(0)
    assert store.store_bytes == 0


def test_a_pin_holds_every_branch_that_its_owner_adds(store: BlockStore) -> None:
    # Pinned before anything of it was stored.
    store.set_pins(["chat"])
    long, fork = list(range(300)), [*range(50), *range(500, 550)]
    for branch in (long[:100], long, fork):
        store.set_reference("chat", FINGERPRINT, token_array(branch))
        store_tokens(store, branch)
    store.prune(0)
    assert (hit(store, long), hit(store, fork)) == (300, 100)


def test_of_a_pinned_chats_checkpoints_those_of_older_turns_may_go(store: BlockStore) -> None:
    ids = list(range(60))
    store.set_pins(["chat"])
    store.set_reference("chat", FINGERPRINT, token_array(ids))
    store_tokens(store, ids)
    for end in (20, 40, 60):
        store.store_checkpoint(FINGERPRINT, token_array(ids), end, whole_state(ids[:end]), kind="turn")
    assert store.flush(5)
    store.prune(0)
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=60)
    assert (match.num_tokens, [checkpoint.end for checkpoint in match.checkpoints]) == (60, [60])


def test_pins_that_cannot_be_noted_are_told(tmp_path: Path) -> None:
    notices: list[str] = []
    store = BlockStore(tmp_path, 10**9, on_notice=notices.append)
    (tmp_path / "owners").rmdir()
    (tmp_path / "owners").write_text("no folder")
    store.set_pins(["chat"])
    assert len(notices) == 1
    assert "pinned" in notices[0]


def test_an_entry_in_use_and_what_it_builds_on_stay(store: BlockStore) -> None:
    ids = list(range(600))
    store_tokens(store, ids)
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=512)
    with store.open_payload(match.blocks[1].block) as payload:
        store.prune(0)
        assert payload is not None
        assert payload.tobytes() == rows_of(ids, 256, 512).tobytes()
        assert stored_spans(store) == [(0, 256), (256, 512)]
    store.prune(0)
    assert stored_spans(store) == []


def test_on_stored_is_called_when_a_burst_is_on_disk(tmp_path: Path) -> None:
    sizes: list[int] = []
    opened = BlockStore(tmp_path, 10**9, on_stored=lambda: sizes.append(opened.store_bytes))
    store_tokens(opened, list(range(600)))
    assert sizes
    assert sizes[-1] == opened.store_bytes
    assert len(sizes) <= 3


def test_wiping_leaves_nothing_of_any_chat(store: BlockStore) -> None:
    store_tokens(store, list(range(300)))
    store_tokens(store, [1, 2], fingerprint=OTHER)
    store.set_pins(["chat"])
    store.set_reference("chat", FINGERPRINT, token_array([0, 1, 2]))
    store.wipe()
    assert store.stats().store_bytes == store.num_blocks == store.stats().num_references == 0
    left = [path for path in store.folder.rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["changes.log"]
    assert store_tokens(store, [1, 2, 3]) == [(0, 3)]
    assert hit(store, [1, 2, 3]) == 3


def test_a_block_is_not_evicted_to_make_room_for_its_own_split(tmp_path: Path) -> None:
    notices: list[str] = []
    store = BlockStore(tmp_path, 4000, on_notice=notices.append)
    first, second = list(range(256)), [*range(100), 999]
    store_tokens(store, first)
    store_tokens(store, second)
    assert stored_spans(store) == [(0, 256)]
    assert (hit(store, first), notices) == (256, [STORE_FULL])


def aged(store: BlockStore, minutes: int) -> BlockStore:
    """Opened again after that long."""
    store.close(5)
    for path in store.folder.glob("*/*.kv"):
        earlier_ns = path.stat().st_mtime_ns - minutes * 60 * 10**9
        os.utime(path, ns=(earlier_ns, earlier_ns))
    return BlockStore(store.folder, store.budget_bytes)


def test_what_was_just_matched_is_not_evicted_before_it_is_restored(store: BlockStore) -> None:
    store_tokens(store, [1] * 50)
    store = aged(store, 10)
    store_tokens(store, [2] * 50)
    store = aged(store, 10)
    store.match_prefix(FINGERPRINT, token_array([1] * 50), max_hit_length=49)
    store.prune(store.store_bytes - 1)
    assert [hit(store, [number] * 50) for number in (1, 2)] == [50, 0]


def test_what_another_process_used_lately_is_spared(store: BlockStore) -> None:
    store_tokens(store, [1] * 50)
    store = aged(store, 10)
    store_tokens(store, [2] * 50)
    store = aged(store, 10)
    assert hit(BlockStore(store.folder, 10**9), [1] * 50) == 50
    store.prune(store.store_bytes - 1)
    assert [hit(store, [number] * 50) for number in (1, 2)] == [50, 0]


def test_being_split_is_no_use_of_a_block(store: BlockStore) -> None:
    store_tokens(store, [1] * 50)
    store = aged(store, 10)
    store_tokens(store, [2] * 50)
    store = aged(store, 10)
    store_tokens(store, [*([1] * 30), 3])
    store.prune(store.store_bytes - 1)
    assert stored_spans(store) == [(0, 30), (0, 50), (30, 31)]
