"""What disks and crashes do to a store: never a wrong row, never a crash, and a notice where the user can help."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import (
    FINGERPRINT,
    cut_rows,
    hit,
    restored,
    rows_of,
    store_tokens,
    whole_state,
)
from tests.inference.whole_store import assert_whole

ROOT = Path(__file__).resolve().parents[3]

posix_only = pytest.mark.skipif(os.name == "nt", reason="needs POSIX")

WRITE_CHATS = """
import itertools, random, sys
from pathlib import Path
from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, store_tokens, whole_state

store, dice = BlockStore(Path(sys.argv[1]), 300_000), random.Random(int(sys.argv[2]))
print("begins", flush=True)
for number in itertools.count():
    ids = [dice.randint(1, 2) for _ in range(9)] * dice.randint(1, 60)
    store.set_reference(f"chat {number % 5}", FINGERPRINT, token_array(ids))
    store_tokens(store, ids, cuts=[dice.randint(1, 500)])
    store.store_checkpoint(FINGERPRINT, token_array(ids), len(ids), whole_state(ids), kind="turn")
    if number % 7 == 6:
        store.forget(f"chat {dice.randint(0, 4)}")
"""


def small_store(folder: Path) -> list[list[int]]:
    store = BlockStore(folder, 10**9)
    chats = [[1, 2, 3, 4, 5], [1, 2, 9], [6]]
    for ids in chats:
        store_tokens(store, ids, cuts=[4])
        store.store_checkpoint(FINGERPRINT, token_array(ids), len(ids), whole_state(ids), kind="turn")
    store.close(5)
    return chats


def check_chats(store: BlockStore, chats: list[list[int]]) -> None:
    """Whatever is found is right."""
    for ids in chats:
        hit(store, ids)
        match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=len(ids))
        for checkpoint in match.checkpoints:
            with store.open_payload(checkpoint) as payload:
                assert payload is None or payload.tobytes() == whole_state(ids[: checkpoint.end]).tobytes()


def test_every_byte_of_a_small_store_flipped_in_turn_gives_no_wrong_row(tmp_path: Path) -> None:
    chats = small_store(tmp_path)
    files = sorted(tmp_path.glob("*/*.kv"))
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        for position in range(len(data)):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            store = BlockStore(tmp_path, 10**9)
            check_chats(store, chats)
            report = store.verify()
            store.close(5)
            # Opened and removed already, or found now.
            assert not path.exists()
            assert report.removed <= 1
        path.write_bytes(data)
    store = BlockStore(tmp_path, 10**9)
    assert store.verify().removed == 0
    assert [hit(store, ids) for ids in chats] == [5, 3, 1]


@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"junk" * 100])
def test_files_emptied_zeroed_or_overwritten_are_misses(tmp_path: Path, content: bytes) -> None:
    chats = small_store(tmp_path)
    for path in tmp_path.glob("*/*.kv"):
        path.write_bytes(content)
    store = BlockStore(tmp_path, 10**9)
    assert [restored(store, ids)[0] for ids in chats] == [0, 0, 0]
    store.verify()
    assert store.store_bytes == 0
    store_tokens(store, chats[0])
    assert hit(store, chats[0]) == 5


def test_foreign_files_and_folders_are_left_alone(tmp_path: Path) -> None:
    chats = small_store(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if len(path.name) == 32)
    foreign = [tmp_path / "notes.txt", folder / "notes.txt", folder / "b-1-2.kv", tmp_path / "other" / "x.kv"]
    (tmp_path / "other").mkdir()
    for path in foreign:
        path.write_text("mine")
    store = BlockStore(tmp_path, 10**9)
    store.verify()
    store.prune(0)
    assert [path.read_text() for path in foreign] == ["mine"] * 4
    assert hit(store, chats[0]) == 0


def kill_while_writing(folder: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(times):
        command = [sys.executable, "-c", WRITE_CHATS, str(folder), str(dice.randint(0, 10**6))]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writing:
            assert writing.stdout is not None
            assert writing.stdout.readline() == b"begins\n"
            time.sleep(dice.random() / 10)
            writing.send_signal(signal.SIGKILL)
        assert_whole(folder)
        store = BlockStore(folder, 10**9)
        for ids in ([1] * 9, [1, 2] * 50, [2] * 300):
            hit(store, ids)
        store.close(5)
    assert store.num_blocks > 0


@posix_only
def test_a_store_verifies_after_its_writer_was_killed(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, 10, seed=1)


@posix_only
@pytest.mark.long
def test_a_store_verifies_after_its_writer_was_killed_two_hundred_times(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, 200, seed=2)


def test_two_processes_at_once_lose_nothing_and_leave_nothing_wrong(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", WRITE_CHATS, str(tmp_path), str(seed)] for seed in (1, 2)]
    writing = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command in commands
    ]
    store = BlockStore(tmp_path, 10**9)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        for ids in ([1] * 9, [2, 1] * 30, [1] * 400):
            hit(store, ids)
    for process in writing:
        assert process.poll() is None
        process.kill()
        _, errors = process.communicate()
        assert errors == b""
    assert BlockStore(tmp_path, 10**9).verify().removed == 0


@posix_only
def test_a_disk_that_refuses_large_files_ends_no_chat(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from inference.kvcache.block_store import BlockStore
from tests.inference.kvcache.prefix_rows import hit, store_tokens

notices = []
store = BlockStore(Path(sys.argv[1]), 10**9, on_notice=notices.append)
store_tokens(store, list(range(10)))
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
ids = [*range(10), *range(10, 500)]
store_tokens(store, ids)
store_tokens(store, ids)
assert hit(store, ids) == 10, hit(store, ids)
store.close(5)
print(*notices, sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("|") == 0
    assert "the chat goes on" in done.stdout
    assert list(tmp_path.rglob(".tmp-*")) == []
    assert BlockStore(tmp_path, 10**9).verify().removed == 0


def put(store: BlockStore, ids: list[int]) -> None:
    """Blocks of 40 kB."""
    for missing in store.missing_ranges(FINGERPRINT, token_array(ids), []):
        rows = rows_of(ids, missing.start, missing.end).repeat(20)
        store.store_block(FINGERPRINT, token_array(ids), missing.start, missing.end, rows, cut_rows)
    assert store.flush(5)


def test_on_a_full_disk_what_is_stored_stays_and_the_user_is_told_once(small_disk: Path) -> None:
    notices: list[str] = []
    store = BlockStore(small_disk, 10**9, on_notice=notices.append)
    for start in range(0, 60_000, 1000):
        put(store, list(range(start, start + 256)))
    assert len(notices) == 1
    assert "No space left on device" in notices[0]
    assert 10 < store.num_blocks < 60
    store.close(5)
    again = BlockStore(small_disk, 10**9)
    report = again.verify()
    assert (report.checked, report.removed) == (store.num_blocks, 0)
    again.prune(again.store_bytes // 2)
    put(again, list(range(70_000, 70_256)))
    match = again.match_prefix(FINGERPRINT, token_array(range(70_000, 70_256)), max_hit_length=256)
    assert match.num_tokens == 256
    again.close(5)


def test_a_disk_mounted_read_only_is_read_and_the_user_told_once(small_disk: Path) -> None:
    ids = list(range(300))
    first = BlockStore(small_disk, 10**9)
    store_tokens(first, ids)
    first.close(5)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    notices: list[str] = []
    store = BlockStore(small_disk, 10**9, on_notice=notices.append)
    assert hit(store, ids) == 300
    longer = [*ids, *range(1000, 1300)]
    store_tokens(store, longer)
    store.set_reference("chat", FINGERPRINT, token_array(longer))
    assert hit(store, longer) == 300
    assert len(notices) == 1
    assert "Read-only file system" in notices[0]
    store.close(5)
