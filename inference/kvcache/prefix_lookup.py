"""Questions to the index about a prompt: what is stored of it, why not more, and what is to be stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

from inference.kvcache.block import MAX_BLOCK_TOKENS, WholeSequence, block_name, prefix_hashes
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_match import BlockRange, MatchedBlock, MissCause, PrefixMatch, WholeMatch
from inference.kvcache.reuse import ReuseRule, TokenArray, common_prefix_length
from inference.kvcache.store_index import StoreIndex


def match_prefix(
    index: StoreIndex, fingerprint: Fingerprint, token_ids: TokenArray, max_hit_length: int
) -> PrefixMatch:
    with index.lock:
        tree = index.tree(fingerprint)
        walk = tree.walk(fingerprint, token_ids, index.token_ids)
        checkpoints = tuple(tree.checkpoints_of(fingerprint, token_ids, max_hit_length))
        blocks = tuple(
            MatchedBlock(matched.block, min(matched.num_tokens, wanted))
            for matched in walk.blocks
            if (wanted := max_hit_length - matched.block.start) > 0
        )
        # Noted in memory only: what is about to be restored must not be evicted meanwhile.
        now_ns = time.time_ns()
        for entry in (*(matched.block for matched in blocks), *checkpoints):
            entry.last_access_ns = now_ns
        num_stored = max(walk.num_tokens, checkpoints[-1].end if checkpoints else 0)
        cause = None
        if num_stored < max_hit_length:
            stored_token_id = walk.stored_token_id if walk.num_tokens == num_stored else None
            cause = _miss_cause(index, fingerprint, token_ids, num_stored, stored_token_id)
    return PrefixMatch(blocks, min(walk.num_tokens, max_hit_length), checkpoints, cause)


def _miss_cause(
    index: StoreIndex,
    fingerprint: Fingerprint,
    token_ids: TokenArray,
    position: int,
    stored_token_id: int | None,
) -> MissCause:
    prompt_token_id = int(token_ids[position])
    evicted = index.changes.evicted_ends()
    ends = sorted(end for end in evicted if position < end <= token_ids.size)
    for end, prefix_hash in zip(ends, prefix_hashes(fingerprint, token_ids, ends), strict=True):
        if prefix_hash in evicted[end]:
            return MissCause("evicted", position, prompt_token_id)
    if other := _stored_otherwise(index, fingerprint, token_ids, position):
        return MissCause(other, position, prompt_token_id)
    if stored_token_id is None:
        return MissCause("nothing_stored", position, prompt_token_id)
    return MissCause("different_token", position, prompt_token_id, stored_token_id)


def _stored_otherwise(
    index: StoreIndex, fingerprint: Fingerprint, token_ids: TokenArray, position: int
) -> Literal["other_build", "other_settings"] | None:
    """Whether more of the prompt is stored under another fingerprint of the same model file."""
    found: Literal["other_build", "other_settings"] | None = None
    folders = [tree.folder for tree in index.trees() if tree.entries]
    for other, same_build in index.notes.others_of_the_model(fingerprint, folders):
        tree = index.tree(other)
        checkpoints = tree.checkpoints_of(other, token_ids, token_ids.size)
        num_stored = checkpoints[-1].end if checkpoints else 0
        if num_stored <= position:
            num_stored = tree.walk(other, token_ids, index.token_ids).num_tokens
        if num_stored > position:
            found = "other_settings" if same_build else "other_build"
            if same_build:
                break
    return found


def match_whole(
    index: StoreIndex, fingerprint: Fingerprint, token_ids: TokenArray, rule: ReuseRule, max_hit_length: int
) -> WholeMatch | None:
    with index.lock:
        matches = [
            WholeMatch(whole, usable)
            for whole in index.tree(fingerprint).wholes()
            if whole.is_stored and (usable := _usable_tokens(index, whole, token_ids, rule, max_hit_length))
        ]
        if not matches:
            return None
        best = max(matches, key=lambda match: (match.num_cached_tokens, -match.sequence.file_bytes))
        best.sequence.last_access_ns = time.time_ns()
        return best


def _usable_tokens(
    index: StoreIndex, whole: WholeSequence, token_ids: TokenArray, rule: ReuseRule, max_hit_length: int
) -> int:
    held_ids = index.token_ids(whole)
    if held_ids is None:
        return 0
    return rule.usable_tokens(
        num_common=common_prefix_length(held_ids, token_ids),
        num_held=whole.end,
        pos_min=whole.pos_min,
        max_hit_length=max_hit_length,
    )


def missing_ranges(
    index: StoreIndex, fingerprint: Fingerprint, token_ids: TokenArray, cuts: Sequence[int]
) -> list[BlockRange]:
    with index.lock:
        tree = index.tree(fingerprint)
        walk = tree.walk(fingerprint, token_ids, index.token_ids, with_waiting=True)
        edges = list(_edges(walk.num_tokens, token_ids.size, cuts))
        hashes = list(prefix_hashes(fingerprint, token_ids, edges))
        names = [
            block_name(start, end, int(token_ids[start]), hash_at_start, hash_at_end)
            for (start, end), (hash_at_start, hash_at_end) in zip(
                pairwise(edges), pairwise(hashes), strict=True
            )
        ]
        return [
            BlockRange(start, end)
            for number, (start, end) in enumerate(pairwise(edges))
            # It is stored all the same where only a block before it is gone; but where a block is to be split
            # before it, that is done when it is stored.
            if names[number] not in tree.entries or (number == 0 and walk.partial)
        ]


def _edges(start: int, end: int, cuts: Iterable[int]) -> Iterable[int]:
    yield start
    for cut in (*sorted(cut for cut in cuts if start < cut < end), end):
        yield from range(start + MAX_BLOCK_TOKENS, cut, MAX_BLOCK_TOKENS)
        if cut > start:
            yield cut
        start = cut
