"""Reading a whole store back: every checksum, and every hash derived anew."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from inference.kvcache.block import (
    Block,
    StoredEntry,
    prefix_hasher,
    prefix_hashes,
    token_bytes,
)
from inference.kvcache.block_file import DamagedFile, NewerVersion, read_header_and_tokens
from inference.kvcache.eviction_policy import orphans
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_tree import PrefixTree
from inference.kvcache.reuse import TokenArray
from inference.kvcache.store_index import StoreIndex


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Numbers of files. removed: damaged. orphans: whole, but what they continue is gone; they are evicted first.
    newer: of a later version of this program, or no files at all (a pipe, a link); left alone."""

    checked: int
    removed: int
    orphans: int
    newer: int


def verify_store(index: StoreIndex) -> VerifyReport:
    """Removes what is damaged. A file that another process removes meanwhile is not damage."""
    index.refresh(forced=True)
    with index.lock:
        entries = list(index.entries())
    damaged_before = index.num_damaged
    for entry in entries:
        with index.open_payload(entry, is_use=False):
            pass
    removed = index.num_damaged - damaged_before
    with index.lock:
        trees = index.trees()
        misnamed = [entry for tree in trees for entry in _misnamed(index, tree)]
    for entry in misnamed:
        index.remove(entry)
    with index.lock:
        num_orphans = sum(len(orphans(tree)) for tree in trees)
    return VerifyReport(len(entries), removed + len(misnamed), num_orphans, len(index.foreign))


def _misnamed(index: StoreIndex, tree: PrefixTree) -> Iterator[StoredEntry]:
    """Entries whose token ids do not give the hash in their name. Of orphans it cannot be told."""
    open_blocks: list[tuple[Block, hashlib.blake2b | None]] = [
        (block, None) for block in tree.blocks() if block.start == 0
    ]
    while open_blocks:
        block, before = open_blocks.pop()
        read = _read(index, block)
        if read is None:
            continue
        fingerprint, token_ids = read
        hasher = (before or prefix_hasher(fingerprint)).copy()
        is_continuation = hasher.hexdigest() == block.parent_hash
        hasher.update(token_bytes(token_ids))
        if token_ids.size == block.end - block.start and is_continuation and hasher.hexdigest() == block.hash:
            open_blocks += [(child, hasher) for child in tree.children(block.hash)]
        else:
            yield block
    for whole in tree.wholes():
        read = _read(index, whole)
        if read is not None and [whole.hash] != list(prefix_hashes(*read, [whole.end])):
            yield whole


def _read(index: StoreIndex, entry: StoredEntry) -> tuple[Fingerprint, TokenArray] | None:
    try:
        header, token_ids = read_header_and_tokens(index.path(entry))
    except (OSError, DamagedFile, NewerVersion):
        # Gone since it was verified.
        return None
    return header.fingerprint, token_ids
