"""Cutting a stored block in two where another prompt leaves it."""

from __future__ import annotations

from collections.abc import Callable

from inference.kvcache.block import Block, block_name, prefix_hashes
from inference.kvcache.block_file import StateBytes, file_bytes
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_match import MatchedBlock
from inference.kvcache.reuse import TokenArray
from inference.kvcache.store_index import StoreIndex

# The rows [first, last) of a block's payload, counted from 0, as a payload. Raises what it likes for an unknown layout.
RowCutter = Callable[[StateBytes, int, int], StateBytes]


def split_block(
    index: StoreIndex,
    matched: MatchedBlock,
    fingerprint: Fingerprint,
    token_ids: TokenArray,
    cut_rows: RowCutter,
) -> bool:
    """Store the block's first num_tokens rows and the others as two blocks in its place. token_ids reach at least to
    the cut. False: the block is gone. Raises OSError and what cut_rows raises; the block then stays as it is."""
    block, num_rows = matched.block, matched.num_tokens
    cut = block.start + num_rows
    last_access_ns = block.last_access_ns
    block_ids = index.token_ids(block)
    (hash_at_cut,) = prefix_hashes(fingerprint, token_ids, [cut])
    written: list[Block] = []
    with index.open_payload(block, is_use=False) as payload:
        if payload is None or block_ids is None:
            return False
        halves = (
            (block.start, cut, block.parent_hash, hash_at_cut),
            (cut, block.end, hash_at_cut, block.hash),
        )
        try:
            for start, end, parent_hash, hash_at_end in halves:
                first, last = start - block.start, end - block.start
                rows = cut_rows(payload, first, last)
                name = block_name(start, end, int(block_ids[first]), parent_hash, hash_at_end)
                half = Block(block.folder, name, file_bytes(last - first, rows.size), 0, is_stored=False)
                if index.has(half):
                    continue
                index.write(half, fingerprint, block_ids[first:last], rows)
                index.set_age(half, last_access_ns)
                written.append(half)
        except BaseException:
            for half in written:
                index.remove(half)
            raise
    index.remove(block)
    return True
