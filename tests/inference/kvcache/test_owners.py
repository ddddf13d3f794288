import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from inference.kvcache.block_store import BlockStore
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.owners import Branch, Owners
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, OTHER, hit, store_tokens, whole_state

ROOT = Path(__file__).resolve().parents[3]


def branch(*ids: int, fingerprint: Fingerprint = FINGERPRINT) -> Branch:
    return Branch(fingerprint, token_array(ids))


def listed(owners: Owners) -> list[list[int]]:
    return sorted(known.token_ids.tolist() for known in owners.references())


def chat(store: BlockStore, owner: str, ids: list[int]) -> list[int]:
    store.set_reference(owner, FINGERPRINT, token_array(ids))
    store_tokens(store, ids)
    return ids


def forget(store: BlockStore, owner: str) -> None:
    store.forget(owner)
    assert store.flush(5)


def test_a_longer_branch_replaces_the_one_it_extends_and_no_other(tmp_path: Path) -> None:
    owners = Owners(tmp_path)
    for ids in ([1, 2], [1, 2, 3], [1, 9], [1, 2], [1, 2, 3]):
        owners.set_reference("chat", branch(*ids))
    owners.set_reference("chat", branch(1, 2, fingerprint=OTHER))
    assert listed(owners) == [[1, 2], [1, 2, 3], [1, 9]]


def test_references_outlive_the_process_and_hide_their_owners_name(tmp_path: Path) -> None:
    Owners(tmp_path).set_reference("secret name", branch(1, 2))
    assert listed(Owners(tmp_path)) == [[1, 2]]
    (path,) = tmp_path.iterdir()
    assert "secret" not in path.name
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"junk", b"\0" * 100])
def test_a_damaged_file_is_removed_and_hides_no_other(tmp_path: Path, damage: bytes) -> None:
    owners = Owners(tmp_path)
    owners.set_reference("chat", branch(1))
    (path,) = tmp_path.iterdir()
    owners.set_reference("other", branch(2))
    path.write_bytes(damage)
    assert listed(owners) == [[2]]
    assert not path.exists()


def test_every_flipped_byte_of_a_reference_is_noticed(tmp_path: Path) -> None:
    owners = Owners(tmp_path)
    owners.set_reference("chat", branch(1, 2))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :])
        assert listed(owners) == []


def test_deleting_a_chat_removes_what_no_other_needs(store: BlockStore) -> None:
    first = chat(store, "first", list(range(300)))
    second = chat(store, "second", [*range(100), *range(500, 600)])
    forget(store, "first")
    assert (hit(store, first), hit(store, second)) == (100, 200)
    forget(store, "second")
    assert store.store_bytes == 0


def test_deleting_a_chat_removes_every_branch_of_it(store: BlockStore) -> None:
    chat(store, "chat", list(range(300)))
    chat(store, "chat", [*range(50), *range(500, 600)])
    forget(store, "chat")
    assert store.store_bytes == 0


def test_deleting_a_chat_removes_its_checkpoints(store: BlockStore) -> None:
    ids = chat(store, "chat", [1, 2, 3, 4])
    chat(store, "other", [1, 2])
    for end in (2, 4):
        store.store_checkpoint(FINGERPRINT, token_array(ids), end, whole_state(ids[:end]), kind="turn")
    assert store.flush(5)
    forget(store, "chat")
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=4)
    assert [checkpoint.end for checkpoint in match.checkpoints] == [2]


def test_checkpoints_without_blocks_are_removed_too(store: BlockStore) -> None:
    ids = token_array([1, 2, 3])
    store.set_reference("chat", FINGERPRINT, ids)
    store.store_checkpoint(FINGERPRINT, ids, 3, whole_state([1, 2, 3]), kind="turn")
    assert store.flush(5)
    forget(store, "chat")
    assert store.num_checkpoints == 0


def test_deleting_a_pinned_chat_removes_it_and_its_pin(store: BlockStore) -> None:
    ids = chat(store, "chat", list(range(300)))
    store.set_pins(["chat"])
    assert store.stats().num_pins == 1
    forget(store, "chat")
    assert (hit(store, ids), store.stats().num_pins) == (0, 0)


def test_what_nobody_refers_to_is_kept_when_another_chat_is_deleted(store: BlockStore) -> None:
    store_tokens(store, [7, 8, 9])
    chat(store, "chat", [1, 2, 3])
    forget(store, "chat")
    assert hit(store, [7, 8, 9]) == 3


def test_forgetting_an_unknown_owner_changes_nothing(store: BlockStore) -> None:
    ids = chat(store, "chat", [1, 2, 3])
    forget(store, "nobody")
    assert hit(store, ids) == 3


def test_what_a_crash_left_of_a_deletion_is_done_at_the_next_start(store: BlockStore) -> None:
    ids = chat(store, "chat", list(range(300)))
    # The process died after the first of the two steps.
    Owners(store.folder / "owners").forget("chat")
    assert hit(store, ids) == 300
    again = BlockStore(store.folder, 10**9)
    assert again.flush(5)
    assert hit(again, ids) == 0
    assert list((store.folder / "owners").iterdir()) == []


def test_an_entry_in_use_is_removed_once_it_is_not(store: BlockStore) -> None:
    ids = chat(store, "chat", [1, 2, 3])
    match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=3)
    with store.open_payload(match.blocks[0].block) as payload:
        forget(store, "chat")
        assert payload is not None
        assert store.num_blocks == 1
    forget(store, "chat")
    assert store.num_blocks == 0


def test_a_chat_of_another_process_keeps_what_it_refers_to(store: BlockStore) -> None:
    ids = chat(store, "mine", list(range(300)))
    code = (
        "import sys; from pathlib import Path; from inference.kvcache.block_store import BlockStore\n"
        "from inference.kvcache.reuse import token_array\n"
        "store = BlockStore(Path(sys.argv[1]), 10**9)\n"
        "store.set_reference('theirs', bytes(range(32)), token_array(range(256)))"
    )
    subprocess.run([sys.executable, "-c", code, str(store.folder)], cwd=ROOT, check=True)
    forget(store, "mine")
    assert hit(store, ids) == 256


def test_of_older_turns_the_checkpoints_go_first_and_each_branch_keeps_its_last(store: BlockStore) -> None:
    def put(ids: list[int], end: int, kind: str) -> None:
        payload = np.zeros(1000, dtype=np.uint8)
        store.store_checkpoint(FINGERPRINT, token_array(ids), end, payload, kind=kind)  # type: ignore[arg-type]

    def left(ids: list[int]) -> list[int]:
        match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=len(ids))
        return [checkpoint.end for checkpoint in match.checkpoints]

    long, fork = list(range(60)), [*range(30), 97, 98]
    chat(store, "long", long)
    chat(store, "fork", fork)
    for end, kind in (
        (5, "system"),
        (10, "user"),
        (20, "turn"),
        (30, "user"),
        (40, "turn"),
        (50, "user"),
        (60, "turn"),
    ):
        put(long, end, kind)
    assert store.flush(5)
    # The fork's last turn ends at 20 and its last question at 30: they stay, though the long branch went on.
    store.prune(store.store_bytes - 2000)
    assert left(long) == [5, 20, 30, 50, 60]
    assert (hit(store, long), hit(store, fork)) == (60, 32)


def test_a_block_that_another_chat_needs_the_beginning_of_goes_with_the_tokens_that_follow(
    store: BlockStore,
) -> None:
    secret = chat(store, "secret", list(range(300)))
    # Nothing of it is missing, so nothing is split.
    assert store_tokens(store, secret[:280]) == []
    store.set_reference("open", FINGERPRINT, token_array(secret[:280]))
    forget(store, "secret")
    assert hit(store, secret) == 256


def test_a_block_of_which_another_chat_needs_but_the_beginning_goes_also_if_both_end_together(
    store: BlockStore,
) -> None:
    chat(store, "secret", [3, 1])
    store.set_reference("open", FINGERPRINT, token_array([3, 3]))
    forget(store, "secret")
    assert store.store_bytes == 0


def test_what_waits_to_be_written_of_a_chat_that_is_deleted_goes_too_whoever_removes_the_rest(
    store: BlockStore,
) -> None:
    release = threading.Event()
    store._writer.submit(lambda: release.wait(5))
    ids = list(range(300))
    store.set_reference("chat", FINGERPRINT, token_array(ids))
    store_tokens(store, ids, flush=False)
    store.forget("chat")
    # Another process that opens the store finds the deletion unfinished, and finishes what it can see of it.
    other = BlockStore(store.folder, 10**9)
    assert other.flush(5)
    assert list((store.folder / "owners").iterdir()) == []
    release.set()
    assert store.flush(5)
    assert (store.num_blocks, hit(store, ids)) == (0, 0)
