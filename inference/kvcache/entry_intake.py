"""The way of new entries into the store: named and noted at once, written by the writer's thread in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from inference.kvcache.block import (
    MAX_BLOCK_TOKENS,
    Block,
    Checkpoint,
    CheckpointKind,
    StoredEntry,
    WholeSequence,
    block_name,
    checkpoint_name,
    folder_name,
    prefix_hashes,
    whole_name,
)
from inference.kvcache.block_file import StateBytes, file_bytes
from inference.kvcache.block_split import RowCutter, split_block
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import ReuseRule, TokenArray, common_prefix_length
from inference.kvcache.store_budget import StoreBudget
from inference.kvcache.store_index import StoreIndex
from inference.kvcache.store_writer import StoreWriter

_NO_TOKENS = np.empty(0, dtype=np.int32)
STORE_FULL = (
    "The KV store is full with chats that are in use or pinned: part of this chat was not stored and will be read "
    "again next time. Free some disk space, or raise store_budget_bytes in settings.toml."
)


class EntryIntake:
    """Every method returns at once. True: stored already, or handed over to the writer."""

    def __init__(self, index: StoreIndex, budget: StoreBudget, writer: StoreWriter) -> None:
        self._index = index
        self._budget = budget
        self._writer = writer

    def store_block(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        start: int,
        end: int,
        payload: StateBytes,
        cut_rows: RowCutter,
    ) -> bool:
        if not 0 <= start < end <= min(token_ids.size, start + MAX_BLOCK_TOKENS):
            raise ValueError(f"no block: tokens {start} to {end} of {token_ids.size}")
        ids = token_ids[:end].copy()
        parent_hash, hash_at_end = prefix_hashes(fingerprint, ids, [start, end])
        name = block_name(start, end, int(ids[start]), parent_hash, hash_at_end)
        block = Block(
            folder_name(fingerprint), name, file_bytes(end - start, payload.size), 0, is_stored=False
        )
        block.token_ids = ids[start:]
        self._remove_if_unreachable(name, fingerprint, ids)
        write = partial(self._write_block, block, fingerprint, ids, payload, cut_rows)
        return self._hand_over(block, fingerprint, payload, write)

    def store_checkpoint(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        end: int,
        payload: StateBytes,
        kind: CheckpointKind,
    ) -> bool:
        ids = token_ids[:end].copy()
        (hash_at_end,) = prefix_hashes(fingerprint, ids, [end])
        folder = folder_name(fingerprint)
        checkpoint = Checkpoint(
            folder, checkpoint_name(end, kind, hash_at_end), file_bytes(0, payload.size), 0, is_stored=False
        )
        with self._index.lock:
            for known in self._index.tree(fingerprint).checkpoints_at(hash_at_end):
                # The state is the same whatever the position was called then.
                if known.is_stored:
                    self._index.touch(known)
                return True
        write = partial(self._write_checkpoint, checkpoint, fingerprint, ids, payload)
        return self._hand_over(checkpoint, fingerprint, payload, write)

    def store_whole(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        payload: StateBytes,
        pos_min: int,
        rule: ReuseRule,
    ) -> bool:
        ids = token_ids.copy()
        (hash_at_end,) = prefix_hashes(fingerprint, ids, [ids.size])
        name = whole_name(ids.size, pos_min, hash_at_end)
        whole = WholeSequence(
            folder_name(fingerprint), name, file_bytes(ids.size, payload.size), 0, is_stored=False
        )
        whole.token_ids = ids
        write = partial(self._write_whole, whole, fingerprint, payload, rule)
        return self._hand_over(whole, fingerprint, payload, write)

    def _remove_if_unreachable(self, name: str, fingerprint: Fingerprint, token_ids: TokenArray) -> None:
        """A stored block that nothing leads to is written anew, after what has to be split for it."""
        with self._index.lock:
            tree = self._index.tree(fingerprint)
            known = tree.entries.get(name)
            if known is None or not known.is_stored:
                return
            walk = tree.walk(fingerprint, token_ids, self._index.token_ids, with_waiting=True)
            if known in walk.reached:
                return
        self._index.remove(known)

    def _hand_over(
        self, entry: StoredEntry, fingerprint: Fingerprint, payload: StateBytes, write: Callable[[], bool]
    ) -> bool:
        with self._index.lock:
            known = self._index.tree(fingerprint).entries.get(entry.name)
            if known is not None:
                if known.is_stored:
                    self._index.touch(known)
                return True
            if self._index.is_foreign(entry):
                return False
            self._index.add_waiting(entry)

        def job() -> bool:
            try:
                return not entry.is_stored and write()
            except FileNotFoundError:
                # Another process wiped the folder meanwhile.
                return False
            finally:
                self._forget_if_unwritten(entry)

        accepted = self._writer.submit(job, payload.size, abandon=partial(self._forget_if_unwritten, entry))
        if not accepted:
            self._forget_if_unwritten(entry)
        return accepted

    def _forget_if_unwritten(self, entry: StoredEntry) -> None:
        if not entry.is_stored:
            self._index.forget(entry)

    def _write_block(
        self,
        block: Block,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        payload: StateBytes,
        cut_rows: RowCutter,
    ) -> bool:
        with self._index.lock:
            before = self._index.tree(fingerprint).walk(
                fingerprint, token_ids[: block.start], self._index.token_ids
            )
        if before.num_tokens < block.start:
            # What it continues could not be stored, or is gone already: nobody would find it.
            return False
        left_inside = before.partial
        needed_bytes = block.file_bytes + (left_inside.block.file_bytes if left_inside else 0)
        if not self._make_room(needed_bytes, before.reached):
            return False
        if left_inside and not split_block(self._index, left_inside, fingerprint, token_ids, cut_rows):
            return False
        self._index.write(block, fingerprint, token_ids[block.start :], payload)
        return True

    def _write_checkpoint(
        self, checkpoint: Checkpoint, fingerprint: Fingerprint, token_ids: TokenArray, payload: StateBytes
    ) -> bool:
        with self._index.lock:
            path = self._index.tree(fingerprint).walk(fingerprint, token_ids, self._index.token_ids).reached
        if not self._make_room(checkpoint.file_bytes, path):
            return False
        self._index.write(checkpoint, fingerprint, _NO_TOKENS, payload)
        return True

    def _write_whole(
        self, whole: WholeSequence, fingerprint: Fingerprint, payload: StateBytes, rule: ReuseRule
    ) -> bool:
        token_ids = whole.token_ids
        if token_ids is None or not self._make_room(whole.file_bytes, ()):
            return False
        self._index.write(whole, fingerprint, token_ids, payload)
        if not rule.recurrent and not rule.n_swa:
            # For a model that can use any prefix they say nothing more.
            for shorter in self._wholes_extended_by(whole, fingerprint, token_ids):
                self._index.remove(shorter)
        return True

    def _wholes_extended_by(
        self, whole: WholeSequence, fingerprint: Fingerprint, token_ids: TokenArray
    ) -> list[WholeSequence]:
        with self._index.lock:
            others = [other for other in self._index.tree(fingerprint).wholes() if other.end < whole.end]
        return [
            other
            for other in others
            if (ids := self._index.token_ids(other)) is not None
            and common_prefix_length(ids, token_ids) == ids.size
        ]

    def _make_room(self, num_bytes: int, protected: Collection[StoredEntry]) -> bool:
        if self._budget.make_room(num_bytes, protected):
            return True
        self._writer.notify(STORE_FULL)
        return False
