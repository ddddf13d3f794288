"""The index over one fingerprint's entries: a tree of blocks, each under the prefix hash at its start."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from inference.kvcache.block import (
    PARENT_HASH,
    TOKEN_BYTES,
    Block,
    BlockHash,
    Checkpoint,
    StoredEntry,
    WholeSequence,
    prefix_hasher,
    prefix_hashes,
    token_bytes,
)
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_match import MatchedBlock
from inference.kvcache.reuse import TokenArray, common_prefix_length

# Token ids of a block, from its file; None if the file is gone or damaged.
TokenReader = Callable[[Block], TokenArray | None]


@dataclass(frozen=True, slots=True)
class Walk:
    """The longest run of blocks that a prompt begins with.

    reached: every block that holds the prompt's tokens, those of other cuts of the same tokens too.
    stored_token_id: what a stored prefix goes on with where the prompt leaves it.
    """

    blocks: tuple[MatchedBlock, ...]
    num_tokens: int
    reached: tuple[Block, ...]
    stored_token_id: int | None

    @property
    def partial(self) -> MatchedBlock | None:
        """The last block, if the run ends inside it."""
        if self.blocks and self.blocks[-1].block.end > self.num_tokens:
            return self.blocks[-1]
        return None


@dataclass(frozen=True, slots=True)
class _Node:
    """A position of the prompt at which a stored block ends (block None: the root)."""

    block: Block | None
    hasher: hashlib.blake2b


class PrefixTree:
    """Not locked: the store's lock guards it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.entries: dict[str, StoredEntry] = {}
        self._children: dict[str, list[Block]] = {}
        self._checkpoints: dict[BlockHash, list[Checkpoint]] = {}
        self._checkpoint_ends: Counter[int] = Counter()

    def add(self, entry: StoredEntry) -> None:
        self.entries[entry.name] = entry
        if isinstance(entry, Block):
            parent_hash = entry.name[PARENT_HASH]
            siblings = self._children.get(parent_hash)
            if siblings is None:
                self._children[parent_hash] = [entry]
            else:
                siblings.append(entry)
        elif isinstance(entry, Checkpoint):
            self._checkpoints.setdefault(entry.hash, []).append(entry)
            self._checkpoint_ends[entry.end] += 1

    def remove(self, entry: StoredEntry) -> None:
        """The entry must be in the tree."""
        del self.entries[entry.name]
        if isinstance(entry, Block):
            siblings = self._children[entry.parent_hash]
            siblings.remove(entry)
            if not siblings:
                del self._children[entry.parent_hash]
        elif isinstance(entry, Checkpoint):
            at_hash = self._checkpoints[entry.hash]
            at_hash.remove(entry)
            if not at_hash:
                del self._checkpoints[entry.hash]
            self._checkpoint_ends[entry.end] -= 1
            if not self._checkpoint_ends[entry.end]:
                del self._checkpoint_ends[entry.end]

    def children(self, prefix_hash: BlockHash) -> list[Block]:
        """Blocks that begin where the prefix of this hash ends."""
        return self._children.get(prefix_hash, [])

    def checkpoints_at(self, prefix_hash: BlockHash) -> list[Checkpoint]:
        return self._checkpoints.get(prefix_hash, [])

    def blocks(self) -> Iterator[Block]:
        return (entry for entry in self.entries.values() if isinstance(entry, Block))

    def wholes(self) -> list[WholeSequence]:
        return [entry for entry in self.entries.values() if isinstance(entry, WholeSequence)]

    def checkpoints_of(self, fingerprint: Fingerprint, token_ids: TokenArray, limit: int) -> list[Checkpoint]:
        """Those of this prompt's prefixes of at most limit tokens, ascending."""
        ends = sorted(end for end in self._checkpoint_ends if end <= limit)
        return [
            checkpoint
            for prefix_hash in prefix_hashes(fingerprint, token_ids, ends)
            for checkpoint in self._checkpoints.get(prefix_hash, ())
            if checkpoint.is_stored
        ]

    def walk(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        read_token_ids: TokenReader,
        *,
        with_waiting: bool = False,
    ) -> Walk:
        """with_waiting: count blocks that are not written yet. Reads a file only where the prompt ends inside a block."""
        nodes, exact, inexact = self._reachable(fingerprint, token_ids, with_waiting)
        length = max(nodes)
        last: MatchedBlock | None = None
        stored_token_id = None
        for block in inexact:
            if block.end <= length:
                continue
            block_ids = read_token_ids(block)
            if block_ids is None:
                continue
            run = common_prefix_length(block_ids, token_ids[block.start :])
            if block.start + run > length:
                length = block.start + run
                last = MatchedBlock(block, run)
                # Equal to the end of the prompt: nothing differs.
                stored_token_id = int(block_ids[run]) if length < token_ids.size else None
        if last is None and length < token_ids.size:
            stored_token_id = self._newest_first_token(nodes[length], with_waiting)
        path = _path_to(nodes, last.block.start if last else length)
        if last:
            path.append(last)
            exact.append(last.block)
        return Walk(tuple(path), length, tuple(exact), stored_token_id)

    def _reachable(
        self, fingerprint: Fingerprint, token_ids: TokenArray, with_waiting: bool
    ) -> tuple[dict[int, _Node], list[Block], list[Block]]:
        """Positions at which blocks of this prompt end; these blocks; others that begin as the prompt goes on there.

        There is more than one way to a position after two processes cut the same tokens differently.
        """
        data = memoryview(token_bytes(token_ids))
        nodes = {0: _Node(None, prefix_hasher(fingerprint))}
        exact, inexact = [], []
        open_positions = [0]
        while open_positions:
            start = heapq.heappop(open_positions)
            if start == token_ids.size:
                continue
            hasher = nodes[start].hasher
            token_id = int(token_ids[start])
            for block in self._children.get(hasher.hexdigest(), ()):
                end = block.end
                if block.first_token_id != token_id or not (block.is_stored or with_waiting):
                    continue
                if end <= token_ids.size:
                    extended = hasher.copy()
                    extended.update(data[start * TOKEN_BYTES : end * TOKEN_BYTES])
                    if extended.hexdigest() == block.hash:
                        exact.append(block)
                        if end not in nodes:
                            nodes[end] = _Node(block, extended)
                            heapq.heappush(open_positions, end)
                        continue
                inexact.append(block)
        return nodes, exact, inexact

    def _newest_first_token(self, node: _Node, with_waiting: bool) -> int | None:
        children = self.children(BlockHash(node.hasher.hexdigest()))
        usable = [block for block in children if block.is_stored or with_waiting]
        return max(usable, key=lambda block: block.last_access_ns).first_token_id if usable else None


def _path_to(nodes: dict[int, _Node], position: int) -> list[MatchedBlock]:
    path = []
    while (block := nodes[position].block) is not None:
        start = block.start
        path.append(MatchedBlock(block, position - start))
        position = start
    return path[::-1]
