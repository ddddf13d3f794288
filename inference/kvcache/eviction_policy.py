"""Which entries go first when the store is over its budget. Order, not deletion: nothing here touches a file."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from inference.kvcache.block import Block, BlockHash, Checkpoint, StoredEntry
from inference.kvcache.prefix_tree import PrefixTree

# Uses are noted once a minute, so entries used in the same minute count as equally recent.
_RECENCY_STEP_NS = 60 * 10**9

_Rank = tuple[int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Exemptions:
    """protected: never evicted (pinned, or about to be built on). superseded: checkpoints that every branch has a
    newer one for; they go before anything that can still be of use."""

    protected: Collection[StoredEntry] = ()
    superseded: Collection[StoredEntry] = ()


def choose_victims(
    trees: Iterable[PrefixTree], bytes_to_free: int, exemptions: Exemptions
) -> list[StoredEntry]:
    """Entries to evict, in this order, until bytes_to_free are free or nothing more may go.

    1. blocks that nothing leads to any more, 2. superseded checkpoints, 3. the least recently used leaves: entries
    that no stored entry builds on. A block goes only after its children, its end's checkpoint only before it; of
    equally recent ones the checkpoint goes first. Entries in use stay, and with them all that they build on.
    """
    candidates = _Candidates(exemptions)
    for tree in trees:
        candidates.add_tree(tree)
    victims: list[StoredEntry] = []
    while bytes_to_free > 0 and (victim := candidates.pop()) is not None:
        victims.append(victim)
        bytes_to_free -= victim.file_bytes
    return victims


class _Candidates:
    """Leaves by rank. Evicting the last one that builds on a block makes that block a leaf."""

    def __init__(self, exemptions: Exemptions) -> None:
        self._protected = set(exemptions.protected)
        self._superseded = set(exemptions.superseded)
        self._num_dependants: Counter[tuple[str, BlockHash]] = Counter()
        self._ending_at: dict[tuple[str, BlockHash], list[Block]] = {}
        self._orphans: set[Block] = set()
        self._heap: list[tuple[_Rank, StoredEntry]] = []

    def add_tree(self, tree: PrefixTree) -> None:
        entries = list(tree.entries.values())
        for entry in entries:
            if isinstance(entry, Block):
                self._num_dependants[tree.folder, entry.parent_hash] += 1
                self._ending_at.setdefault((tree.folder, entry.hash), []).append(entry)
            elif isinstance(entry, Checkpoint):
                self._num_dependants[tree.folder, entry.hash] += 1
        self._orphans.update(orphans(tree))
        for entry in entries:
            self._push_if_leaf(entry)

    def pop(self) -> StoredEntry | None:
        if not self._heap:
            return None
        entry = heapq.heappop(self._heap)[1]
        freed = entry.parent_hash if isinstance(entry, Block) else entry.hash
        if isinstance(entry, Block | Checkpoint):
            self._num_dependants[entry.folder, freed] -= 1
            for block in self._ending_at.get((entry.folder, freed), ()):
                self._push_if_leaf(block)
        return entry

    def _push_if_leaf(self, entry: StoredEntry) -> None:
        if isinstance(entry, Block) and self._num_dependants[entry.folder, entry.hash]:
            return
        if entry.is_stored and not entry.ref_count and entry not in self._protected:
            heapq.heappush(self._heap, (self._rank(entry), entry))

    def _rank(self, entry: StoredEntry) -> _Rank:
        group = 0 if entry in self._orphans else 1 if entry in self._superseded else 2
        recency = entry.last_access_ns // _RECENCY_STEP_NS
        return group, recency, isinstance(entry, Block), entry.last_access_ns, entry.name


def orphans(tree: PrefixTree) -> set[Block]:
    """Blocks that no chain of blocks leads to from the root."""
    unreached = set(tree.blocks())
    open_blocks = [block for block in unreached if block.start == 0]
    unreached.difference_update(open_blocks)
    while open_blocks:
        for child in tree.children(open_blocks.pop().hash):
            if child in unreached:
                unreached.remove(child)
                open_blocks.append(child)
    return unreached
