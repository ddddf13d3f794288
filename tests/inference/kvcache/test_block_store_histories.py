"""Random histories of two processes on one store, against a plain set of the sequences that were stored."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from inference.kvcache.block import MAX_BLOCK_TOKENS
from inference.kvcache.block_store import BlockStore
from inference.kvcache.reuse import token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, restored, rows_of, store_tokens, whole_state

Ids = tuple[int, ...]

# Runs of one token, so that chats share long beginnings, leave each other anywhere and cross the edges of blocks.
some_ids = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 1, 2, 3, 7, 100, 255, 256, 257])), min_size=1, max_size=4
).map(lambda runs: tuple(token for token, count in runs for _ in range(count)))
fraction = st.floats(0, 1)
which = st.integers(0, 1)
owner_names = st.sampled_from(["ann", "bob", "cid"])


def common(first: Ids, second: Ids) -> int:
    for position, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return position
    return min(len(first), len(second))


class Histories(RuleBasedStateMachine):
    """stored: sequences whose every row must be found. lost: sequences of which nobody knows how much is left."""

    chats = Bundle("chats")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.stored: set[Ids] = set()
        self.lost: set[Ids] = set()
        self.checkpoints: set[Ids] = set()
        self.lost_checkpoints: set[Ids] = set()
        self.branches: dict[str, set[Ids]] = {}
        self.pinned: set[str] = set()

    @initialize()
    def open_both(self) -> None:
        self.stores = [BlockStore(self.folder, 10**9) for _ in range(2)]

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            store.close(5)
        shutil.rmtree(self.folder)

    def may_lose(self, kept: set[Ids], *, but_last_checkpoints: bool = False) -> None:
        """Something was removed that the sequences in `kept` do not need; but_last_checkpoints: of their checkpoints
        they need the last ones only."""
        lost = {ids for ids in self.stored if not any(common(ids, other) == len(ids) for other in kept)}
        self.stored -= lost
        # The needed part of what is lost is still there.
        self.stored |= {ids[: max(common(ids, other) for other in kept)] for ids in lost if kept}
        self.stored.discard(())
        self.lost |= lost
        ever = self.checkpoints | self.lost_checkpoints
        on_kept = [sorted((ids for ids in ever if ids == other[: len(ids)]), key=len) for other in kept]
        # The last may be one of which nobody knows whether it is still there: then none is sure to be kept.
        needed = {ids for found in on_kept for ids in found[-1 if but_last_checkpoints else 0 :]}
        self.checkpoints &= needed
        self.lost_checkpoints = ever

    @rule(target=chats, number=which, ids=some_ids, cuts=st.lists(st.integers(0, 800), max_size=3))
    def store_new(self, number: int, ids: Ids, cuts: list[int]) -> Ids:
        store_tokens(self.stores[number], ids, cuts)
        self.stored.add(ids)
        return ids

    @rule(target=chats, number=which, chat=chats, at=fraction, more=some_ids)
    def branch(self, number: int, chat: Ids, at: float, more: Ids) -> Ids:
        ids = chat[: round(at * len(chat))] + more
        store_tokens(self.stores[number], ids, [round(at * len(chat))])
        self.stored.add(ids)
        return ids

    @rule(target=chats, number=which, chat=chats, at=fraction)
    def truncate(self, number: int, chat: Ids, at: float) -> Ids:
        ids = chat[: max(1, round(at * len(chat)))]
        store_tokens(self.stores[number], ids)
        self.stored.add(ids)
        return ids

    @rule(number=which, chat=chats, at=fraction, kind=st.sampled_from(["system", "user", "turn"]))
    def store_checkpoint(self, number: int, chat: Ids, at: float, kind: str) -> None:
        ids = chat[: max(1, round(at * len(chat)))]
        self.stores[number].store_checkpoint(
            FINGERPRINT,
            token_array(chat),
            len(ids),
            whole_state(ids),
            kind=kind,  # type: ignore[arg-type]
        )
        assert self.stores[number].flush(10)
        self.checkpoints.add(ids)

    @rule(number=which, chat=chats, owner=owner_names)
    def refer(self, number: int, chat: Ids, owner: str) -> None:
        self.stores[number].set_reference(owner, FINGERPRINT, token_array(chat))
        self.branches.setdefault(owner, set()).add(chat)

    @rule(number=which, owner=owner_names)
    def forget(self, number: int, owner: str) -> None:
        self.stores[number].forget(owner)
        assert self.stores[number].flush(10)
        forgotten = self.branches.pop(owner, set())
        self.pinned.discard(owner)
        needed = set().union(*self.branches.values())
        stored = set(self.stored)
        self.may_lose(needed)
        # Others lose no more than the rest of a block that held tokens of the forgotten owner, too.
        for ids in stored & needed:
            num_tokens, _ = restored(self.stores[number], ids)
            assert num_tokens > len(ids) - MAX_BLOCK_TOKENS
        self.stored = {ids[: restored(self.stores[number], ids)[0]] for ids in self.stored} - {()}
        # Tokens that only the forgotten owner's branches held are gone.
        for ids in forgotten:
            needed_tokens = max((common(ids, other) for other in needed), default=0)
            assert restored(self.stores[number], ids)[0] <= needed_tokens

    @rule(number=which, owner=owner_names)
    def pin_or_unpin(self, number: int, owner: str) -> None:
        self.pinned ^= {owner}
        self.stores[number].set_pins(self.pinned)

    @rule(number=which, at=fraction)
    def evict(self, number: int, at: float) -> None:
        store = self.stores[number]
        store.prune(round(at * store.store_bytes))
        branches = set().union(*(self.branches.get(owner, set()) for owner in self.pinned))
        self.may_lose(
            {ids for ids in branches if not any(ids == o[: len(ids)] for o in branches - {ids})},
            but_last_checkpoints=True,
        )

    @rule(number=which)
    def restart(self, number: int) -> None:
        self.stores[number].close(5)
        self.stores[number] = BlockStore(self.folder, 10**9)

    @rule(number=which, at=fraction)
    def lose_a_file(self, number: int, at: float) -> None:
        files = sorted(self.folder.glob("*/*.kv"))
        if files:
            files[round(at * (len(files) - 1))].unlink()
            self.may_lose(set())

    @rule(number=which)
    def verify(self, number: int) -> None:
        assert self.stores[number].verify().removed == 0

    @invariant()
    def every_stored_row_is_found_and_never_another(self) -> None:
        ever = self.stored | self.lost
        for number, ids in enumerate(sorted(ever)):
            prompt = (*ids, 9)
            num_tokens, rows = restored(self.stores[number % 2], prompt)
            assert rows == rows_of(prompt, 0, num_tokens).tobytes()
            assert num_tokens >= max((common(prompt, other) for other in self.stored), default=0)
            assert num_tokens <= max(common(prompt, other) for other in ever)

    @invariant()
    def checkpoints_are_found_at_their_positions(self) -> None:
        ever = self.checkpoints | self.lost_checkpoints
        for number, ids in enumerate(sorted(ever)):
            store = self.stores[number % 2]
            match = store.match_prefix(FINGERPRINT, token_array(ids), max_hit_length=len(ids))
            found = {ids[: checkpoint.end] for checkpoint in match.checkpoints}
            assert {c for c in self.checkpoints if common(c, ids) == len(c)} <= found <= ever
            for checkpoint in match.checkpoints:
                with store.open_payload(checkpoint) as payload:
                    assert (
                        payload is None or payload.tobytes() == whole_state(ids[: checkpoint.end]).tobytes()
                    )

    @invariant()
    def both_count_the_bytes_on_disk(self) -> None:
        for store in getattr(self, "stores", []):
            store._index.refresh(forced=True)
            assert store.store_bytes == sum(path.stat().st_size for path in self.folder.glob("*/*.kv"))


def run_histories(max_examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories() -> None:
    run_histories(200, 20)


@pytest.mark.long
def test_many_random_histories() -> None:
    run_histories(5000, 30)
