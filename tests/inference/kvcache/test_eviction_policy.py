"""The order of eviction, pinned: no files, no store."""

import hashlib

import pytest

from inference.kvcache.block import (
    Block,
    BlockHash,
    Checkpoint,
    CheckpointKind,
    block_name,
    checkpoint_name,
)
from inference.kvcache.eviction_policy import Exemptions, choose_victims, orphans
from inference.kvcache.prefix_tree import PrefixTree

MINUTE = 60 * 10**9
NONE_EXEMPT = Exemptions()


def hash_of(prefix: str) -> BlockHash:
    return BlockHash(hashlib.blake2b(prefix.encode(), digest_size=16).hexdigest())


class Tree(PrefixTree):
    """Prefixes are words here: one letter, one token."""

    def __init__(self) -> None:
        super().__init__("f")

    def block(self, before: str, own: str, age_minutes: int, num_bytes: int = 10) -> Block:
        start, end = len(before), len(before + own)
        name = block_name(start, end, ord(own[0]), hash_of(before), hash_of(before + own))
        block = Block("f", name, num_bytes, (1000 - age_minutes) * MINUTE)
        self.add(block)
        return block

    def checkpoint(self, prefix: str, age_minutes: int, kind: CheckpointKind = "turn") -> Checkpoint:
        name = checkpoint_name(len(prefix), kind, hash_of(prefix))
        checkpoint = Checkpoint("f", name, 10, (1000 - age_minutes) * MINUTE)
        self.add(checkpoint)
        return checkpoint


@pytest.fixture
def tree() -> Tree:
    return Tree()


def all_victims(tree: PrefixTree, exemptions: Exemptions = NONE_EXEMPT) -> list[object]:
    return list(choose_victims([tree], 10**9, exemptions))


def test_leaves_go_least_recently_used_first_and_parents_after_their_children(tree: Tree) -> None:
    root = tree.block("", "abc", 50)
    old, new = tree.block("abc", "x", 40), tree.block("abc", "y", 10)
    newest = tree.block("abcx", "z", 5)
    assert all_victims(tree) == [new, newest, old, root]


def test_no_more_goes_than_is_needed(tree: Tree) -> None:
    blocks = [tree.block("", letter, age) for age, letter in enumerate("abc")]
    assert choose_victims([tree], 11, NONE_EXEMPT) == [blocks[2], blocks[1]]
    assert choose_victims([tree], 10, NONE_EXEMPT) == [blocks[2]]
    assert choose_victims([tree], 0, NONE_EXEMPT) == []


def test_of_equally_recent_entries_the_checkpoint_goes_first(tree: Tree) -> None:
    block, checkpoint = tree.block("", "ab", 7), tree.checkpoint("xy", 7)
    older_block = tree.block("", "cd", 8)
    assert all_victims(tree) == [older_block, checkpoint, block]


def test_a_block_stays_as_long_as_the_checkpoint_at_its_end(tree: Tree) -> None:
    block, checkpoint = tree.block("", "ab", 50), tree.checkpoint("ab", 1)
    other = tree.block("", "cd", 20)
    assert all_victims(tree) == [other, checkpoint, block]


def test_superseded_checkpoints_go_before_anything_of_use(tree: Tree) -> None:
    old_block, superseded = tree.block("", "ab", 50), tree.checkpoint("abc", 1)
    assert all_victims(tree, Exemptions(superseded=[superseded])) == [superseded, old_block]


def test_blocks_that_nothing_leads_to_go_first(tree: Tree) -> None:
    old = tree.block("", "a", 90)
    orphan, its_child = tree.block("xy", "z", 1), tree.block("xyz", "w", 2)
    superseded = tree.checkpoint("abc", 80)
    assert orphans(tree) == {orphan, its_child}
    assert all_victims(tree, Exemptions(superseded=[superseded])) == [its_child, orphan, superseded, old]


def test_a_block_that_one_of_two_ways_leads_to_is_no_orphan(tree: Tree) -> None:
    tree.block("", "abcd", 1)
    lost_way, child = tree.block("ab", "cd", 1), tree.block("abcd", "e", 1)
    assert orphans(tree) == {lost_way}
    assert child not in orphans(tree)


def test_what_is_protected_or_in_use_stays_and_with_it_all_that_it_builds_on(tree: Tree) -> None:
    tree.block("", "a", 50)
    used, protected = tree.block("a", "b", 40), tree.block("a", "c", 40)
    free = tree.block("ab", "d", 1)
    used.ref_count = 1
    assert all_victims(tree, Exemptions(protected=[protected])) == [free]


def test_what_waits_to_be_written_keeps_what_it_builds_on(tree: Tree) -> None:
    parent = tree.block("", "a", 50)
    waiting = tree.block("a", "b", 1)
    waiting.is_stored = False
    assert all_victims(tree) == []
    waiting.is_stored = True
    assert all_victims(tree) == [waiting, parent]


def test_two_models_entries_compete_by_recency_alone() -> None:
    first, second = Tree(), Tree()
    blocks = [first.block("", "a", 3), second.block("", "b", 2), first.block("", "c", 1)]
    assert choose_victims([first, second], 10**9, NONE_EXEMPT) == blocks
