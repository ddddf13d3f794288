"""The store without any model: random bytes stand for states."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inference.kvcache.checkpoint_file import HEADER_BYTES
from inference.kvcache.checkpoint_store import CheckpointStore
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import ReuseRule, token_array

FINGERPRINT = Fingerprint(bytes(32))
FULL_ATTENTION = ReuseRule()
STATE = np.arange(1000, dtype=np.uint64).astype(np.uint8)
FILE_BYTES = HEADER_BYTES + 4 * 4 + 1000


def open_store(folder: Path, budget_bytes: int = 10**9) -> CheckpointStore:
    return CheckpointStore(folder, budget_bytes)


def hit(
    store: CheckpointStore,
    ids: list[int],
    fingerprint: Fingerprint = FINGERPRINT,
    rule: ReuseRule = FULL_ATTENTION,
) -> int:
    """Tokens of the prompt `ids` that the store has, the last left out."""
    match = store.match_prefix(fingerprint, token_array(ids), rule, max_hit_length=len(ids) - 1)
    return match.num_cached_tokens if match else 0


def put(store: CheckpointStore, ids: list[int], fingerprint: Fingerprint = FINGERPRINT) -> Path:
    return store.write(fingerprint, token_array(ids), 0, STATE).path


def test_the_longest_stored_prefix_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2])
    put(store, [1, 2, 3, 4])
    put(store, [9, 9, 9, 9, 9])
    assert hit(store, [1, 2, 3, 4, 5]) == 4
    assert hit(store, [1, 2, 3, 8]) == 3
    assert hit(store, [7, 1, 2]) == 0


def test_a_stored_sequence_longer_than_the_prompt_gives_all_but_the_prompts_last_token(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2, 3, 4])
    assert hit(store, [1, 2, 3, 4]) == 3
    assert hit(store, [1, 2]) == 1


def test_of_equal_hits_the_smaller_file_is_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2, 3, 4, 5, 6])
    small = put(store, [1, 2, 3])
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3, 9]), ReuseRule(), max_hit_length=3)
    assert match is not None
    assert match.checkpoint.path == small


def test_another_fingerprint_is_a_miss(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2, 3])
    assert hit(store, [1, 2, 3, 4], Fingerprint(b"\x01" * 32)) == 0


def test_a_recurrent_state_is_used_at_its_end_only(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2, 3])
    rule = ReuseRule(recurrent=True)
    assert hit(store, [1, 2, 3, 4], rule=rule) == 3
    assert hit(store, [1, 2, 3], rule=rule) == 0
    assert hit(store, [1, 2, 9, 4], rule=rule) == 0


def test_files_outlive_the_store_and_are_found_again(tmp_path: Path) -> None:
    put(open_store(tmp_path), [1, 2, 3])
    store = open_store(tmp_path)
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3, 4]), ReuseRule(), max_hit_length=3)
    assert match is not None
    with store.open_state(match.checkpoint) as state:
        assert state is not None
        assert state.tobytes() == STATE.tobytes()
    assert store.bytes_read == match.checkpoint.header.file_bytes == match.checkpoint.path.stat().st_size


def test_what_another_process_adds_or_removes_is_noticed(tmp_path: Path) -> None:
    first, second = open_store(tmp_path), open_store(tmp_path)
    path = put(second, [1, 2, 3])
    assert hit(first, [1, 2, 3, 4]) == 3
    path.unlink()
    assert hit(first, [1, 2, 3, 4]) == 0
    assert first.store_bytes == 0


def test_equal_content_is_written_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, [1, 2, 3])
    written = store.bytes_written
    put(store, [1, 2, 3])
    assert (
        store.bytes_written
        == written
        == store.store_bytes
        == sum(p.stat().st_size for p in tmp_path.iterdir())
    )


def test_a_file_deleted_between_look_up_and_use_is_a_miss(tmp_path: Path) -> None:
    # Reported as abetlen/llama-cpp-python#348.
    store = open_store(tmp_path)
    put(store, [1, 2, 3])
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3, 4]), ReuseRule(), max_hit_length=3)
    assert match is not None
    match.checkpoint.path.unlink()
    with store.open_state(match.checkpoint) as state:
        assert state is None
    assert hit(store, [1, 2, 3, 4]) == 0


def test_a_file_evicted_between_look_up_and_use_is_a_miss(tmp_path: Path) -> None:
    store = open_store(tmp_path, budget_bytes=FILE_BYTES - 1)
    put(store, [1, 2, 3, 4])
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3, 4, 5]), ReuseRule(), max_hit_length=4)
    assert match is not None
    store.evict_to_budget()
    with store.open_state(match.checkpoint) as state:
        assert state is None


def test_a_damaged_state_is_a_miss_and_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    path = put(store, [1, 2, 3])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    match = store.match_prefix(FINGERPRINT, token_array([1, 2, 3, 4]), ReuseRule(), max_hit_length=3)
    assert match is not None
    with store.open_state(match.checkpoint) as state:
        assert state is None
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"junk" * 100])
def test_a_file_that_is_no_checkpoint_does_not_hide_the_others(tmp_path: Path, content: bytes) -> None:
    put(open_store(tmp_path), [1, 2, 3])
    (tmp_path / "0000.kvseq").write_bytes(content)
    assert hit(open_store(tmp_path), [1, 2, 3, 4]) == 3


def test_the_least_recently_used_leave_first(tmp_path: Path) -> None:
    store = open_store(tmp_path, budget_bytes=2 * FILE_BYTES)
    for age, ids in enumerate(([1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3])):
        os.utime(put(store, ids), ns=(age, age))
    store = open_store(tmp_path, budget_bytes=2 * FILE_BYTES)
    match = store.match_prefix(FINGERPRINT, token_array([1, 1, 1, 1, 0]), ReuseRule(), max_hit_length=4)
    assert match is not None
    with store.open_state(match.checkpoint):
        pass
    store.evict_to_budget()
    assert [hit(store, [n] * 4 + [0]) for n in (1, 2, 3)] == [4, 0, 4]
    assert store.store_bytes == 2 * FILE_BYTES


def test_checkpoints_that_a_longer_one_extends_are_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    shorter, branch = put(store, [1, 2]), put(store, [1, 9])
    other_model = put(store, [1, 2], Fingerprint(b"\x01" * 32))
    store.remove_prefixes_of(store.write(FINGERPRINT, token_array([1, 2, 3]), 0, STATE))
    assert not shorter.exists()
    assert branch.exists()
    assert other_model.exists()


def test_folder_and_files_are_the_owners_only(tmp_path: Path) -> None:
    path = put(open_store(tmp_path / "kv"), [1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700


def test_temporary_files_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    abandoned, in_use = tmp_path / f".tmp-{dead.pid}-x", tmp_path / f".tmp-{os.getppid()}-x"
    abandoned.touch()
    in_use.touch()
    open_store(tmp_path)
    assert not abandoned.exists()
    assert in_use.exists()
