"""The tree alone, without files: what a block's file would hold is given to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.kvcache.block import Block, Checkpoint, block_name, checkpoint_name, prefix_hashes
from inference.kvcache.prefix_tree import PrefixTree, Walk
from inference.kvcache.reuse import TokenArray, token_array
from tests.inference.kvcache.prefix_rows import FINGERPRINT, spans


class Tree(PrefixTree):
    def __init__(self) -> None:
        super().__init__("f")
        self.reads: list[Block] = []

    def block(self, ids: Sequence[int], start: int) -> Block:
        """The tokens of ids from start on."""
        before, after = prefix_hashes(FINGERPRINT, token_array(ids), [start, len(ids)])
        block = Block("f", block_name(start, len(ids), ids[start], before, after), 10, 0)
        block.token_ids = token_array(ids[start:])
        self.add(block)
        return block

    def checkpoint(self, ids: Sequence[int]) -> Checkpoint:
        (after,) = prefix_hashes(FINGERPRINT, token_array(ids), [len(ids)])
        checkpoint = Checkpoint("f", checkpoint_name(len(ids), "turn", after), 10, 0)
        self.add(checkpoint)
        return checkpoint

    def read(self, block: Block) -> TokenArray | None:
        self.reads.append(block)
        return block.token_ids

    def find(self, ids: Sequence[int], with_waiting: bool = False) -> Walk:
        return self.walk(FINGERPRINT, token_array(ids), self.read, with_waiting=with_waiting)


@pytest.fixture
def tree() -> Tree:
    return Tree()


def used(walk: Walk) -> list[tuple[int, int, int]]:
    return [(matched.block.start, matched.block.end, matched.num_tokens) for matched in walk.blocks]


def test_an_empty_tree_and_an_empty_prompt_match_nothing(tree: Tree) -> None:
    assert (tree.find([1, 2]).num_tokens, tree.find([]).num_tokens) == (0, 0)
    tree.block([1, 2], 0)
    assert tree.find([]).blocks == ()


def test_whole_blocks_are_recognised_by_name_alone(tree: Tree) -> None:
    tree.block([1, 2, 3], 0)
    tree.block([1, 2, 3, 4, 5], 3)
    assert used(tree.find([1, 2, 3, 4, 5, 6])) == [(0, 3, 3), (3, 5, 2)]
    assert tree.reads == []


def test_only_the_block_that_goes_on_with_the_same_token_is_read(tree: Tree) -> None:
    tree.block([1, 2, 3], 0)
    for token in range(10, 20):
        tree.block([1, 2, 3, token, 7, 8], 3)
    walk = tree.find([1, 2, 3, 15, 7, 9])
    assert used(walk) == [(0, 3, 3), (3, 6, 2)]
    assert walk.stored_token_id == 8
    assert spans(tree.reads) == [(3, 6)]


def test_a_block_whose_file_is_gone_ends_the_match(tree: Tree) -> None:
    block = tree.block([1, 2, 3], 0)
    block.token_ids = None
    assert tree.find([1, 2]).num_tokens == 0


def test_equal_tokens_after_another_beginning_are_no_match(tree: Tree) -> None:
    tree.block([1, 2], 0)
    tree.block([1, 2, 5, 6], 2)
    tree.block([3, 4], 0)
    assert tree.find([3, 4, 5, 6]).num_tokens == 2


def test_of_several_cuts_the_one_that_leads_farthest_is_taken(tree: Tree) -> None:
    ids = list(range(1, 11))
    tree.block(ids[:6], 0)
    tree.block(ids[:4], 0)
    tree.block(ids[:8], 4)
    walk = tree.find(ids)
    assert used(walk) == [(0, 4, 4), (4, 8, 4)]
    assert spans(walk.reached) == [(0, 4), (0, 6), (4, 8)]


def test_of_several_cuts_that_lead_equally_far_the_one_of_fewer_blocks_is_taken(tree: Tree) -> None:
    ids = list(range(1, 7))
    tree.block(ids[:3], 0)
    tree.block(ids, 3)
    tree.block(ids, 0)
    walk = tree.find(ids)
    assert used(walk) == [(0, 6, 6)]
    assert len(walk.reached) == 3


def test_a_match_may_end_inside_a_block_that_another_cut_ends_before(tree: Tree) -> None:
    ids = list(range(1, 11))
    tree.block(ids[:3], 0)
    tree.block(ids, 0)
    walk = tree.find([*ids[:7], 99])
    assert used(walk) == [(0, 10, 7)]
    assert walk.partial is not None
    assert walk.stored_token_id == 8


def test_nothing_differs_where_the_prompt_itself_ends(tree: Tree) -> None:
    tree.block([1, 2, 3], 0)
    assert (tree.find([1, 2]).num_tokens, tree.find([1, 2]).stored_token_id) == (2, None)
    assert tree.find([1, 2, 3]).stored_token_id is None


def test_at_an_edge_the_token_of_the_branch_used_last_is_told(tree: Tree) -> None:
    tree.block([1, 2], 0)
    tree.block([1, 2, 3], 2).last_access_ns = 5
    tree.block([1, 2, 4], 2).last_access_ns = 9
    tree.block([1, 2, 5], 2).last_access_ns = 7
    assert tree.find([1, 2, 8]).stored_token_id == 4


def test_what_waits_is_found_only_by_those_who_ask_for_it(tree: Tree) -> None:
    tree.block([1, 2], 0)
    tree.block([1, 2, 3, 4], 2).is_stored = False
    assert [tree.find([1, 2, 3, 9], waiting).num_tokens for waiting in (False, True)] == [2, 3]


def test_checkpoints_of_a_prompt_are_told_by_position_and_prefix(tree: Tree) -> None:
    first, second = tree.checkpoint([1, 2]), tree.checkpoint([1, 2, 3, 4])
    tree.checkpoint([1, 9])
    ids = token_array([1, 2, 3, 4, 5])
    assert tree.checkpoints_of(FINGERPRINT, ids, 5) == [first, second]
    assert tree.checkpoints_of(FINGERPRINT, ids, 3) == [first]
    tree.remove(first)
    assert tree.checkpoints_of(FINGERPRINT, ids, 5) == [second]


def test_a_removed_block_is_no_longer_found(tree: Tree) -> None:
    block = tree.block([1, 2], 0)
    tree.remove(block)
    assert tree.find([1, 2]).num_tokens == 0
    assert tree.entries == {}
    assert tree.children(block.parent_hash) == []


sequences = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=12), min_size=1, max_size=6)


@given(sequences, st.lists(st.integers(1, 2), max_size=14), st.data())
def test_any_cut_of_any_sequences_gives_the_longest_common_run(
    stored: list[list[int]], prompt: list[int], data: st.DataObject
) -> None:
    tree = Tree()
    for ids in stored:
        inner = data.draw(st.sets(st.integers(1, len(ids)), max_size=3)) - {len(ids)}
        edges = [0, *sorted(inner), len(ids)]
        for start, end in pairwise(edges):
            known = {block.name for block in tree.blocks()}
            block = Tree().block(ids[:end], start)
            if block.name not in known:
                tree.add(block)
    walk = tree.find(prompt)
    longest = max(
        next(
            (n for n, (a, b) in enumerate(zip(ids, prompt, strict=False)) if a != b),
            min(len(ids), len(prompt)),
        )
        for ids in stored
    )
    assert walk.num_tokens == longest == sum(matched.num_tokens for matched in walk.blocks)
