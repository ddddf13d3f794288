"""Misses put down to another build of the library or other settings, by the notes in the store's folders."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.kvcache.block_store import BlockStore
from inference.kvcache.fingerprint import FingerprintFields, fingerprint
from inference.kvcache.prefix_match import MissCause
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import reopened, store_tokens, whole_state

OLD = FingerprintFields("aa" * 32, "build 1", 1, 1, True, 0, False, "none")
NEW = replace(OLD, library_build="build 2")
QUANTISED = replace(OLD, type_k=8)
OTHER_MODEL = replace(OLD, model_sha256="bb" * 32)
IDS = list(range(300))


def read_by(store: BlockStore, fields: FingerprintFields, ids: list[int] = IDS) -> None:
    store_tokens(store, ids, fingerprint=store.introduce(fields))


def cause(store: BlockStore, fields: FingerprintFields, ids: list[int] = IDS) -> MissCause:
    made = store.introduce(fields)
    miss = store.match_prefix(made, token_array(ids), max_hit_length=len(ids) - 1).first_difference
    assert miss is not None
    return miss


def notes(store: BlockStore) -> list[Path]:
    return sorted(store.folder.glob("*/fingerprint.json"))


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (NEW, "other_build"),
        (replace(OLD, layout_version=2), "other_build"),
        (replace(NEW, type_k=8), "other_build"),
        (QUANTISED, "other_settings"),
        (replace(OLD, lora=("cc" * 32,)), "other_settings"),
        (replace(OLD, rope_factors="long"), "other_settings"),
        (OTHER_MODEL, "nothing_stored"),
    ],
)
def test_what_the_same_model_file_read_otherwise_is_told_after_a_restart(
    store: BlockStore, by: FingerprintFields, reason: str
) -> None:
    read_by(store, by)
    assert cause(reopened(store), OLD) == MissCause(reason, 0, 0)  # type: ignore[arg-type]


def test_it_is_told_at_any_position_and_only_of_this_very_prompt(store: BlockStore) -> None:
    read_by(store, OLD)
    read_by(store, NEW, IDS[:100])
    assert cause(store, NEW) == MissCause("other_build", 100, 100)
    assert cause(store, NEW, [*IDS[:100], 7, 7, 7]).reason == "nothing_stored"
    read_by(store, NEW, [*IDS[:100], 8, 8])
    assert cause(store, NEW, [*IDS[:100], 7, 7, 7]).reason == "different_token"


def test_a_checkpoint_alone_tells_as_much(store: BlockStore) -> None:
    store.store_checkpoint(store.introduce(OLD), token_array(IDS), 200, whole_state(IDS[:200]), kind="turn")
    assert store.flush(5)
    assert cause(reopened(store), NEW).reason == "other_build"


def test_other_settings_of_this_build_are_told_before_another_build(store: BlockStore) -> None:
    for fields in (NEW, QUANTISED, replace(NEW, type_k=8)):
        read_by(store, fields)
    assert cause(store, OLD).reason == "other_settings"


def test_eviction_is_told_before_another_build(store: BlockStore) -> None:
    read_by(store, NEW)
    store.prune(0)
    read_by(store, OLD)
    assert cause(store, NEW).reason == "evicted"


def test_what_the_other_build_stored_and_was_evicted_is_no_reason(store: BlockStore) -> None:
    read_by(store, OLD)
    store.prune(0)
    assert cause(store, NEW).reason == "nothing_stored"


def test_there_is_one_note_a_folder_and_none_of_what_stored_nothing(store: BlockStore) -> None:
    read_by(store, OLD)
    read_by(store, OLD, [7, 8, 9])
    store.introduce(NEW)
    assert [note.parent.name for note in notes(store)] == [fingerprint(OLD).hex()[:32]]
    store.wipe()
    assert notes(store) == []
    read_by(store, OLD)
    assert len(notes(store)) == 1
    assert store.verify().checked == 2


def test_the_folder_of_an_earlier_version_gets_its_note_when_it_is_written_to(store: BlockStore) -> None:
    read_by(store, OLD)
    notes(store)[0].unlink()
    again = reopened(store)
    assert cause(again, NEW).reason == "nothing_stored"
    read_by(again, OLD, [*IDS, 5])
    assert cause(reopened(again), NEW).reason == "other_build"


def test_a_note_of_another_folder_is_not_believed(store: BlockStore) -> None:
    read_by(store, OLD)
    read_by(store, OTHER_MODEL)
    text = next(note for note in notes(store) if "bb" * 32 in note.read_text())
    text.write_text(next(note for note in notes(store) if note != text).read_text())
    assert cause(reopened(store), replace(OTHER_MODEL, library_build="build 2")).reason == "nothing_stored"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.binary(max_size=100)
    | st.recursive(
        st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
    .map(repr)
    .map(str.encode)
    | st.sampled_from(
        [b"{}", b"[]", b"null", b"[[", b'{"lora": 3}', b'{"model_sha256": 1, "lora": []}', b"[" * 5000]
    )
)
def test_a_damaged_note_tells_nothing_and_harms_nothing(store: BlockStore, content: bytes) -> None:
    if not notes(store):
        read_by(store, OLD)
    (note,) = notes(store)
    note.write_bytes(content)
    again = BlockStore(store.folder, 10**9)
    assert cause(again, NEW).reason == "nothing_stored"
    assert again.match_prefix(again.introduce(OLD), token_array(IDS), max_hit_length=299).num_tokens == 299
    again.close(5)
