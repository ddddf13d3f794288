"""A folder of blocks and checkpoints by content, shared by all chats, restarts and processes: what the engine calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inference.kvcache.block import Block, Checkpoint, CheckpointKind, StoredEntry, WholeSequence
from inference.kvcache.block_file import StateBytes
from inference.kvcache.block_split import RowCutter
from inference.kvcache.entry_intake import EntryIntake
from inference.kvcache.fingerprint import Fingerprint, FingerprintFields
from inference.kvcache.owners import Branch, Owners
from inference.kvcache.payload_stream import PayloadReader
from inference.kvcache.prefix_lookup import match_prefix, match_whole, missing_ranges
from inference.kvcache.prefix_match import BlockRange, PrefixMatch, WholeMatch
from inference.kvcache.restore_rates import RestoreRates
from inference.kvcache.reuse import ReuseRule, TokenArray
from inference.kvcache.store_budget import StoreBudget
from inference.kvcache.store_index import StoreIndex
from inference.kvcache.store_verification import VerifyReport, verify_store
from inference.kvcache.store_writer import StoreWriter, disk_refused

_MAX_WAITING_BYTES = 256 << 20
# For the one file at work.
_WIPE_TIMEOUT_S = 10.0
_NOT_FORGOTTEN = (
    "This chat's memory could not be removed from the KV store ({}): the chat itself is deleted. Check the data folder, "
    "or wipe the store in the settings."
)
_NOT_PINNED = "Which chats are pinned could not be noted in the KV store ({}): check the data folder."


@dataclass(frozen=True, slots=True)
class StoreStats:
    """num_tokens: tokens in blocks. num_wholes: sequences stored whole, because their layout is not known.
    num_pins: owners."""

    store_bytes: int
    budget_bytes: int
    num_blocks: int
    num_tokens: int
    num_checkpoints: int
    num_wholes: int
    num_references: int
    num_pins: int
    bytes_written_today: int
    bytes_written_total: int


class BlockStore:
    """For one inference thread; files are written on a thread of the store's own. Several processes may share a folder.

    on_notice and on_stored: as in StoreWriter. Payloads and token ids handed over must not change afterwards.
    """

    def __init__(
        self,
        folder: Path,
        budget_bytes: int,
        *,
        on_notice: Callable[[str], None] = lambda notice: None,
        on_stored: Callable[[], None] = lambda: None,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
    ) -> None:
        """max_waiting_bytes: payloads handed over and not written yet. Raises OSError if the folder is of no use."""
        self.folder = folder
        self._index = StoreIndex(folder)
        self._owners = Owners(folder / "owners")
        self._reader = PayloadReader(self._index)
        self._budget = StoreBudget(self._index, self._owners, budget_bytes)
        self._writer = StoreWriter(on_notice, on_stored, max_waiting_bytes)
        self._intake = EntryIntake(self._index, self._budget, self._writer)
        self._writer.submit(self._remove_forgotten)

    @property
    def store_bytes(self) -> int:
        return self._index.store_bytes

    @property
    def num_blocks(self) -> int:
        return self._index.counts[Block]

    @property
    def num_checkpoints(self) -> int:
        return self._index.counts[Checkpoint]

    @property
    def bytes_read(self) -> int:
        """By this process, to restore and to split."""
        return self._index.bytes_read

    @property
    def bytes_written(self) -> int:
        """By this process."""
        return self._index.bytes_written

    @property
    def bytes_written_today(self) -> int:
        """By all processes."""
        with self._index.lock:
            return self._index.changes.bytes_written_today()

    @property
    def bytes_written_total(self) -> int:
        """By all processes, since the store was made."""
        with self._index.lock:
            return self._index.changes.bytes_written_total()

    @property
    def budget_bytes(self) -> int:
        return self._budget.budget_bytes

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int) -> None:
        self._budget.budget_bytes = budget_bytes
        self._writer.submit(self._evict_to_budget)

    def introduce(self, fields: FingerprintFields) -> Fingerprint:
        """These fields' fingerprint. What it is made of is noted with what is stored under it, so that a miss can be put
        down to another build or other settings."""
        with self._index.lock:
            return self._index.notes.introduce(fields)

    def restore_rates(self, fingerprint: Fingerprint) -> RestoreRates:
        """What is known of this disk and of this model by now, other processes' measurements included."""
        return RestoreRates(self.folder / "rates.json", fingerprint)

    def match_prefix(
        self, fingerprint: Fingerprint, token_ids: TokenArray, *, max_hit_length: int
    ) -> PrefixMatch:
        """What is stored of the prompt's first max_hit_length tokens, and why not more."""
        self._index.refresh()
        return match_prefix(self._index, fingerprint, token_ids, max_hit_length)

    def match_whole(
        self, fingerprint: Fingerprint, token_ids: TokenArray, rule: ReuseRule, *, max_hit_length: int
    ) -> WholeMatch | None:
        """The whole sequence that serves most of the prompt; of equals, the smallest. None: none can be used."""
        self._index.refresh()
        return match_whole(self._index, fingerprint, token_ids, rule, max_hit_length)

    def missing_ranges(
        self, fingerprint: Fingerprint, token_ids: TokenArray, cuts: Sequence[int]
    ) -> list[BlockRange]:
        """The blocks to store so that all of token_ids is stored, without those that wait to be written: cut at
        `cuts` (ends of messages) and every 256 tokens from each start. The first may begin inside a stored block."""
        self._index.refresh()
        return missing_ranges(self._index, fingerprint, token_ids, cuts)

    def open_payload(self, entry: StoredEntry) -> AbstractContextManager[StateBytes | None]:
        """The verified state to restore, valid inside the with block. None: gone or damaged, a miss from now on."""
        return self._index.open_payload(entry)

    def each_payload(self, entries: Sequence[StoredEntry]) -> Generator[StateBytes | None]:
        """Likewise of several, in turn, each valid until the next is asked for; the next is read meanwhile. To be closed
        where it is not used up."""
        return self._reader.each(entries)

    def check(self, entries: Iterable[StoredEntry]) -> None:
        """Read these back; those that are gone or damaged are misses from now on."""
        for entry in entries:
            with self._index.open_payload(entry, is_use=False):
                pass

    def reject(self, entry: StoredEntry) -> None:
        """The library refused this state although its checksums hold: it is of no use to anyone."""
        self._index.remove(entry)

    def store_block(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        start: int,
        end: int,
        payload: StateBytes,
        cut_rows: RowCutter,
    ) -> bool:
        """Hand the rows [start, end) of token_ids over to the writer, and return at once. False: not accepted, since
        too much waits already. A stored block that the tokens leave at start is split with cut_rows, on the writer's
        thread; a block whose beginning is not stored is dropped there."""
        return self._intake.store_block(fingerprint, token_ids, start, end, payload, cut_rows)

    def store_checkpoint(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        end: int,
        payload: StateBytes,
        *,
        kind: CheckpointKind,
    ) -> bool:
        """Likewise, for the state after exactly `end` of token_ids."""
        return self._intake.store_checkpoint(fingerprint, token_ids, end, payload, kind)

    def store_whole(
        self,
        fingerprint: Fingerprint,
        token_ids: TokenArray,
        payload: StateBytes,
        *,
        pos_min: int,
        rule: ReuseRule,
    ) -> bool:
        """Likewise, for a whole sequence's state. It replaces those it extends, where the model can use any prefix."""
        return self._intake.store_whole(fingerprint, token_ids, payload, pos_min, rule)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything handed over is on disk. False: it was not within timeout_s."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what was handed over, for timeout_s at most; what is not begun then is not stored."""
        self._writer.close(timeout_s)
        self._reader.close()

    def set_reference(self, owner: str, fingerprint: Fingerprint, token_ids: TokenArray) -> None:
        """The owner's chat has a branch that ends so. It replaces the branch that it extends, and no other.

        To be called before the branch is stored: then forget() finds all of it, even after a crash.
        """
        try:
            self._owners.set_reference(owner, Branch(fingerprint, token_ids))
        except OSError as error:
            self._writer.notify(disk_refused(error))

    def forget(self, owner: str) -> None:
        """Remove the owner's references at once, and then, on the writer's thread, every entry that nobody else's
        reference needs. What a crash leaves of it is done when the store is opened next."""
        try:
            branches = self._owners.forget(owner)
        except OSError as error:
            self._writer.notify(_NOT_FORGOTTEN.format(error.strerror or error))
        else:
            self._writer.submit(partial(self._remove_forgotten, branches))

    def set_pins(self, owners: Iterable[str]) -> None:
        """Never evict what is stored of these owners' branches, nor what will be; other owners' pins are taken away.
        Of checkpoints the last ones stay, as many as going on with each branch needs."""
        try:
            self._owners.set_pins(owners)
        except OSError as error:
            self._writer.notify(_NOT_PINNED.format(error.strerror or error))

    def evict_to_budget(self) -> None:
        """In the order of eviction_policy. The writer makes room by itself before it writes."""
        self.prune(self.budget_bytes)

    def prune(self, to_bytes: int) -> None:
        """Evict until at most to_bytes are stored, or all the rest is pinned or in use."""
        self._budget.evict(to_bytes)

    def verify(self) -> VerifyReport:
        """Read every file back and remove what is damaged."""
        return verify_store(self._index)

    def stats(self) -> StoreStats:
        self._index.refresh()
        with self._index.lock:
            blocks = [entry for entry in self._index.entries() if isinstance(entry, Block)]
            return StoreStats(
                store_bytes=self.store_bytes,
                budget_bytes=self.budget_bytes,
                num_blocks=len(blocks),
                num_tokens=sum(block.end - block.start for block in blocks),
                num_checkpoints=self.num_checkpoints,
                num_wholes=self._index.counts[WholeSequence],
                num_references=self._owners.num_references(),
                num_pins=self._owners.num_pins(),
                bytes_written_today=self.bytes_written_today,
                bytes_written_total=self.bytes_written_total,
            )

    def wipe(self) -> None:
        """Remove everything: entries of all models and versions, references, pins, and what waits to be written.

        Raises OSError if something could not be removed.
        """
        self._writer.discard()
        self._writer.flush(_WIPE_TIMEOUT_S)
        self._owners.wipe()
        self._index.wipe()

    def _remove_forgotten(self, branches: Sequence[Branch] = ()) -> bool:
        self._budget.remove_forgotten(branches)
        return False

    def _evict_to_budget(self) -> bool:
        self._budget.evict(self.budget_bytes)
        return False
