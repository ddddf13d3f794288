"""Keeps a store within its byte budget, and removes what a forgotten owner alone needed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from inference.kvcache.block import Block, Checkpoint, StoredEntry, WholeSequence, prefix_hashes
from inference.kvcache.block_file import unlink
from inference.kvcache.eviction_policy import Exemptions, choose_victims
from inference.kvcache.owners import Branch, Owners
from inference.kvcache.store_index import StoreIndex

_logger = logging.getLogger(__name__)
# When room is made, a little more than needed: choosing victims looks at every entry and every reference.
_SPARE_FRACTION = 16
# A second look is needed where another process has used what was chosen.
_MAX_ROUNDS = 3


class StoreBudget:
    def __init__(self, index: StoreIndex, owners: Owners, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._index = index
        self._owners = owners

    def make_room(self, num_bytes: int, protected: Collection[StoredEntry]) -> bool:
        """For a new file of num_bytes that builds on `protected`. False: what is stored may not give way to it."""
        if num_bytes > self.budget_bytes:
            return False
        if self._index.store_bytes + num_bytes > self.budget_bytes:
            spare = max(num_bytes, self.budget_bytes // _SPARE_FRACTION)
            self.evict(self.budget_bytes - spare, protected)
        return self._index.store_bytes + num_bytes <= self.budget_bytes

    def evict(self, to_bytes: int, protected: Collection[StoredEntry] = ()) -> None:
        """Evict until the store holds at most to_bytes, or nothing more may go."""
        self._index.refresh()
        if self._index.store_bytes <= to_bytes:
            return
        pins, references = list(self._owners.pins()), self._references_if_checkpoints()
        for _ in range(_MAX_ROUNDS):
            with self._index.lock:
                excess = self._index.store_bytes - to_bytes
                if excess <= 0:
                    return
                superseded = self._superseded(references)
                pinned = self._entries_of(pins) - superseded
                exemptions = Exemptions({*protected, *pinned}, superseded)
                victims = choose_victims(self._index.trees(), excess, exemptions)
            if not victims:
                return
            for victim in victims:
                if not victim.ref_count and not self._index.used_by_others(victim):
                    _logger.info("%s is evicted", victim)
                    self._index.remove(victim, evicted=True)

    def remove_forgotten(self, just_forgotten: Sequence[Branch] = ()) -> None:
        """Remove every entry that forgotten owners' branches lead to and that no reference needs.

        just_forgotten: by this process. Another may have taken them off the list before the last of their entries,
        which waited here, was written.
        """
        listed = self._owners.forgotten()
        if not listed and not just_forgotten:
            return
        self._index.refresh()
        needed = list(self._owners.references())
        self._remove_entries_of(just_forgotten, needed)
        for path, branches in listed:
            if self._remove_entries_of(branches, needed):
                unlink(path)

    def _remove_entries_of(self, branches: Iterable[Branch], needed: Iterable[Branch]) -> bool:
        """False: some are in use and stay for now."""
        with self._index.lock:
            # A block that others need only the beginning of holds tokens that they do not have: it goes too.
            kept = self._entries_of(needed, with_last_in_part=False)
            removed = self._with_dependants(self._entries_of(branches) - kept) - kept
            in_use = {entry for entry in removed if entry.ref_count}
        for entry in sorted(removed - in_use, key=lambda entry: -entry.end):
            if entry.is_stored:
                self._index.remove(entry)
        return not in_use

    def _entries_of(self, branches: Iterable[Branch], *, with_last_in_part: bool = True) -> set[StoredEntry]:
        """Everything stored that holds state of these branches' tokens; with_last_in_part: also a block that holds
        more than that."""
        entries: set[StoredEntry] = set()
        for branch in branches:
            fingerprint, ids = branch.fingerprint, branch.token_ids
            tree = self._index.tree(fingerprint)
            walk = tree.walk(fingerprint, ids, self._index.token_ids)
            in_part = {walk.partial.block} if walk.partial and not with_last_in_part else set()
            entries.update(set(walk.reached) - in_part)
            entries.update(tree.checkpoints_of(fingerprint, ids, ids.size))
            wholes: dict[int, list[WholeSequence]] = {}
            for whole in tree.wholes():
                if whole.end <= ids.size:
                    wholes.setdefault(whole.end, []).append(whole)
            for end, prefix_hash in zip(
                sorted(wholes), prefix_hashes(fingerprint, ids, sorted(wholes)), strict=True
            ):
                entries.update(whole for whole in wholes[end] if whole.hash == prefix_hash)
        return entries

    def _with_dependants(self, entries: set[StoredEntry]) -> set[StoredEntry]:
        """With all that builds on them: without them nobody could use it."""
        found = set(entries)
        open_entries = list(entries)
        trees = {tree.folder: tree for tree in self._index.trees()}
        while open_entries:
            entry = open_entries.pop()
            if isinstance(entry, Block):
                tree = trees[entry.folder]
                for dependant in (*tree.children(entry.hash), *tree.checkpoints_at(entry.hash)):
                    if dependant not in found:
                        found.add(dependant)
                        open_entries.append(dependant)
        return found

    def _references_if_checkpoints(self) -> list[Branch]:
        """They matter to checkpoints only, and there may be thousands to read."""
        return list(self._owners.references()) if self._index.counts[Checkpoint] else []

    def _superseded(self, references: list[Branch]) -> set[Checkpoint]:
        """Checkpoints on the path of some reference that are not the last of their kind on any reference's path.

        Of system prompts' ends all are kept: they are few, and every new chat begins with one.
        """
        on_paths: set[Checkpoint] = set()
        kept: set[Checkpoint] = set()
        for branch in references:
            checkpoints = self._index.tree(branch.fingerprint).checkpoints_of(
                branch.fingerprint, branch.token_ids, branch.token_ids.size
            )
            on_paths.update(checkpoints)
            kept.update(checkpoint for checkpoint in checkpoints if checkpoint.kind == "system")
            kept.update({checkpoint.kind: checkpoint for checkpoint in checkpoints}.values())
        return on_paths - kept
