"""State without a model: each token's row is told by the ids up to it, so that a wrong row cannot go unnoticed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from inference.kvcache.block import Block, StoredEntry
from inference.kvcache.block_file import StateBytes
from inference.kvcache.block_store import BlockStore
from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.reuse import token_array

ROW_BYTES = 8
FINGERPRINT = Fingerprint(bytes(range(32)))
OTHER = Fingerprint(b"\x01" * 32)


def rows_of(ids: Sequence[int], start: int, end: int) -> StateBytes:
    row, rows = b"", []
    for token_id in ids[:end]:
        row = hashlib.blake2b(row + int(token_id).to_bytes(4, "little"), digest_size=ROW_BYTES).digest()
        rows.append(row)
    return np.frombuffer(b"".join(rows[start:]), dtype=np.uint8)


def cut_rows(payload: StateBytes, first: int, last: int) -> StateBytes:
    return payload[first * ROW_BYTES : last * ROW_BYTES]


def whole_state(ids: Sequence[int]) -> StateBytes:
    """A checkpoint's payload: nothing of it serves at another position."""
    return np.frombuffer(b"state after " + rows_of(ids, len(ids) - 1, len(ids)).tobytes(), dtype=np.uint8)


def store_tokens(
    store: BlockStore,
    ids: Sequence[int],
    cuts: Sequence[int] = (),
    fingerprint: Fingerprint = FINGERPRINT,
    flush: bool = True,
) -> list[tuple[int, int]]:
    """As the engine does after a turn; the ranges that were missing."""
    ranges = store.missing_ranges(fingerprint, token_array(ids), cuts)
    for missing in ranges:
        rows = rows_of(ids, missing.start, missing.end)
        assert store.store_block(fingerprint, token_array(ids), missing.start, missing.end, rows, cut_rows)
    if flush:
        assert store.flush(10)
    return [(missing.start, missing.end) for missing in ranges]


def restored(
    store: BlockStore, ids: Sequence[int], fingerprint: Fingerprint = FINGERPRINT
) -> tuple[int, bytes]:
    """Tokens matched and the rows that a restore would bring back, after the first block that turns out to be gone."""
    match = store.match_prefix(fingerprint, token_array(ids), max_hit_length=len(ids))
    rows = bytearray()
    position = 0
    for matched in match.blocks:
        assert matched.block.start == position
        with store.open_payload(matched.block) as payload:
            if payload is None:
                return position, bytes(rows)
            rows += payload[: matched.num_tokens * ROW_BYTES].tobytes()
        position += matched.num_tokens
    assert position == match.num_tokens
    return position, bytes(rows)


def hit(store: BlockStore, ids: Sequence[int], fingerprint: Fingerprint = FINGERPRINT) -> int:
    """Tokens restored; their rows are the right ones."""
    num_tokens, rows = restored(store, ids, fingerprint)
    assert rows == rows_of(ids, 0, num_tokens).tobytes()
    return num_tokens


def spans(entries: Sequence[StoredEntry]) -> list[tuple[int, int]]:
    return sorted((entry.start, entry.end) for entry in entries if isinstance(entry, Block))


def stored_spans(store: BlockStore, fingerprint: Fingerprint = FINGERPRINT) -> list[tuple[int, int]]:
    """Of the blocks' files on disk."""
    return sorted(
        (int(path.name.split("-")[1]), int(path.name.split("-")[2]))
        for path in store.folder.glob(f"{fingerprint.hex()[:32]}/b-*.kv")
    )


def reopened(store: BlockStore) -> BlockStore:
    """The same folder, known from its files alone."""
    store.close(5)
    return BlockStore(store.folder, store.budget_bytes)
