"""The one sequence in memory and its counterpart in the store: bring a prompt's prefix, keep what was computed.

For the inference thread only. Rows are copied out between batches, one block a call; hashing and files are the
store's writer's.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence as ListOf
from contextlib import ExitStack, closing

from inference.kvcache.block import Block, Checkpoint, CheckpointKind, StoredEntry
from inference.kvcache.block_store import BlockStore
from inference.kvcache.prefix_match import BlockRange, MissCause, PrefixMatch
from inference.kvcache.reuse import TokenArray, num_leading_equal, token_array
from inference.llama.sequence import Sequence
from inference.llama.sequence_state import (
    IncompleteState,
    StateKind,
    capture_block,
    capture_checkpoint,
    restore_block,
    restore_checkpoint,
    state_kind,
)
from inference.llama.state_layout import StateBytes, UnknownLayout, cut_rows
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.prompt import Prompt
from inference.stored_prefix import BroughtPrefix, StoredPrefix

_logger = logging.getLogger(__name__)
# Files may vanish or be damaged between look-up and use; after this many misses the rest is prefilled.
_MAX_RESTORE_TRIES = 3
_MAX_BLOCK_TOKENS = 256


class StoredSequence:
    """store None or fingerprint None: nothing is read or kept, memory alone is used."""

    def __init__(
        self, loaded: LoadedModel, sequence: Sequence, store: BlockStore | None, owner: str | None
    ) -> None:
        """owner: whoever the sequence belongs to, so that it can be forgotten with them; None: nobody."""
        self._sequence = sequence
        self._rule = loaded.reuse_rule
        fields = loaded.fingerprint_fields() if store is not None else None
        self._fingerprint = store.introduce(fields) if store is not None and fields is not None else None
        self._store = store if self._fingerprint is not None else None
        self._rates = (
            None if store is None or self._fingerprint is None else store.restore_rates(self._fingerprint)
        )
        self._owner = owner
        self._kind = state_kind(sequence)
        self._cuts: tuple[int, ...] = ()
        self._ranges: deque[BlockRange] = deque()
        self._planned_tokens = 0
        self._num_kept = 0

    @property
    def has_checkpoints(self) -> bool:
        """Whether state must be copied at exact positions, since it cannot be cut later."""
        return self._kind in (StateKind.BLOCKS_AND_CHECKPOINTS, StateKind.CHECKPOINTS_ONLY)

    # --- bringing ----------------------------------------------------------------------------------

    def num_in_memory(self, prompt: Prompt) -> int:
        """Leading tokens of the prompt that memory alone can serve."""
        held = self._sequence.token_ids
        return self._rule.usable_tokens(
            num_common=num_leading_equal(held, prompt.token_ids),
            num_held=len(held),
            pos_min=self._sequence.pos_min() or 0,
            # The last token is always decoded: its logits are stored nowhere.
            max_hit_length=len(prompt.token_ids) - 1,
        )

    def look_up(self, prompt: Prompt) -> StoredPrefix:
        """What bring() would find in the store with nothing in memory; reads and changes nothing."""
        if self._store is None or self._fingerprint is None:
            return StoredPrefix(0, 0, 0, None)
        tokens = token_array(prompt.token_ids)
        match = self._store.match_prefix(self._fingerprint, tokens, max_hit_length=tokens.size - 1)
        target, checkpoint = self._target(match)
        num_bytes = self._num_bytes(match, target, checkpoint, in_memory=0)
        return StoredPrefix(max(match.num_tokens, target), target, num_bytes, match.first_difference)

    def bring(self, prompt: Prompt) -> BroughtPrefix:
        """Make the sequence hold as much of the prompt's beginning as memory or store have, and nothing else."""
        self._cuts = prompt.message_ends
        tokens = token_array(prompt.token_ids)
        if self._should_move(prompt):
            self._sequence.clear()
        # Rows of these tokens stay where they are; whatever the sequence holds beyond comes from the store.
        self._num_kept = num_common = num_leading_equal(self._sequence.token_ids, prompt.token_ids)
        num_stored, miss = self._bring_from_store(prompt, tokens)
        usable = self.num_in_memory(prompt)
        if usable and not self._go_back(usable):
            # What memory has is of no use after all.
            self._sequence.clear()
            self._num_kept = 0
            num_stored, miss = self._bring_from_store(prompt, tokens)
            usable = self.num_in_memory(prompt)
        if not usable:
            self._sequence.clear()
        if self.has_checkpoints and self._store is not None:
            # Of recurrent state the store cannot tell how much of another prompt it shares; memory can.
            num_stored = max(num_stored, min(num_common, len(prompt.token_ids) - 1))
        reused = min(self._num_kept, usable)
        return BroughtPrefix(reused, usable - reused, num_stored, miss)

    def _bring_from_store(self, prompt: Prompt, tokens: TokenArray) -> tuple[int, MissCause | None]:
        """Whatever the store has beyond what memory can serve; how much is stored, and why not more."""
        num_stored, miss = 0, None
        for _ in range(_MAX_RESTORE_TRIES):
            if self._store is None or self._fingerprint is None:
                break
            match = self._store.match_prefix(self._fingerprint, tokens, max_hit_length=tokens.size - 1)
            target, checkpoint = self._target(match)
            # A checkpoint may hold what no block does.
            num_stored, miss = max(match.num_tokens, target), match.first_difference
            if not self._is_worth_restoring(match, target, checkpoint, self.num_in_memory(prompt)):
                break
            if self._measured_restore(match, target, checkpoint, prompt.token_ids):
                break
            # Where one file is damaged more may be: all that is gets computed and stored anew with this turn.
            self._store.check([*(matched.block for matched in match.blocks), *match.checkpoints])
        if self._kind == StateKind.WHOLE:
            self._restore_whole(tokens, self.num_in_memory(prompt))
        return num_stored, miss

    def _should_move(self, prompt: Prompt) -> bool:
        """Whether its rows, computed beside other sequences that are gone by now, are better read back into the
        cells that they would have had without them."""
        sequence = self._sequence
        if sequence.lies_as_if_alone or not sequence.is_alone:
            return False
        return self.look_up(prompt).num_usable >= self.num_in_memory(prompt)

    def _go_back(self, num_tokens: int) -> bool:
        """Keep the first num_tokens of what memory holds."""
        sequence = self._sequence
        if sequence.keeps_cells(num_tokens) or not sequence.lies_as_if_alone:
            return sequence.truncate(num_tokens)
        if not self.has_checkpoints or not sequence.truncate(num_tokens):
            return False
        # As if the window came from the store: that puts it where it would lie if nothing had followed it.
        try:
            window = capture_checkpoint(sequence)
        except (IncompleteState, UnknownLayout):
            return False
        return restore_checkpoint(sequence, window, list(sequence.token_ids))

    def _target(self, match: PrefixMatch) -> tuple[int, Checkpoint | None]:
        """How far this kind of model can go with what was found."""
        if self._kind == StateKind.BLOCKS:
            return match.num_tokens, None
        only_checkpoints = self._kind == StateKind.CHECKPOINTS_ONLY
        within = [c for c in match.checkpoints if only_checkpoints or c.end <= match.num_tokens]
        return (within[-1].end, within[-1]) if within else (0, None)

    def _is_worth_restoring(
        self, match: PrefixMatch, target: int, checkpoint: Checkpoint | None, in_memory: int
    ) -> bool:
        """Whether reading is expected to be quicker than prefilling, by what both took on this machine so far."""
        if target <= in_memory or self._rates is None:
            return False
        num_bytes = self._num_bytes(match, target, checkpoint, in_memory=self._num_kept)
        num_tokens = target - in_memory
        if self._rates.prefers_restore(num_bytes, num_tokens):
            return True
        self._rates.turned_down(num_tokens)
        self._probe_disk(checkpoint if checkpoint is not None else match.blocks[-1].block)
        return self._rates.prefers_restore(num_bytes, num_tokens)

    def _probe_disk(self, entry: StoredEntry) -> None:
        """Read one file only to learn how long that takes, if it is time to."""
        assert self._store is not None
        assert self._rates is not None
        if not self._rates.affords_probe(entry.file_bytes):
            return
        started, read_before = time.perf_counter(), self._store.bytes_read
        with self._store.open_payload(entry):
            pass
        self._rates.observe_probe(self._store.bytes_read - read_before, time.perf_counter() - started)

    def _num_bytes(
        self, match: PrefixMatch, target: int, checkpoint: Checkpoint | None, *, in_memory: int
    ) -> int:
        """Bytes to read so as to come from in_memory to target."""
        blocks = (
            [] if self._kind == StateKind.CHECKPOINTS_ONLY else [matched.block for matched in match.blocks]
        )
        num_bytes = sum(
            block.file_bytes for block in blocks if block.start < target and block.end > in_memory
        )
        return num_bytes + (checkpoint.file_bytes if checkpoint is not None else 0)

    def _measured_restore(
        self, match: PrefixMatch, target: int, checkpoint: Checkpoint | None, ids: ListOf[TokenId]
    ) -> bool:
        assert self._store is not None
        assert self._rates is not None
        started, read_before = time.perf_counter(), self._store.bytes_read
        restored = self._restore(match, target, checkpoint, ids)
        self._rates.observe_restore(self._store.bytes_read - read_before, time.perf_counter() - started)
        return restored

    def observe_prefill(self, num_tokens: int, seconds: float) -> None:
        """How long this model really takes to read."""
        if self._rates is not None:
            self._rates.observe_prefill(num_tokens, seconds)

    def _restore(
        self, match: PrefixMatch, target: int, checkpoint: Checkpoint | None, ids: ListOf[TokenId]
    ) -> bool:
        assert self._store is not None
        num_held = num_leading_equal(self._sequence.token_ids, ids[:target])
        # Of blocks that are in memory already no byte is read.
        blocks = [
            (matched.block, ids[start : min(start + matched.num_tokens, target)])
            for matched in (() if self._kind == StateKind.CHECKPOINTS_ONLY else match.blocks)
            if (start := matched.block.start) < target and start + matched.num_tokens > num_held
        ]
        if checkpoint is None:
            return self._restore_blocks(blocks)
        with ExitStack() as opened:
            # Blocks without their checkpoint cost what memory has, so all are verified before the first is used.
            payloads: list[StateBytes] = []
            for entry in (*(block for block, _ in blocks), checkpoint):
                payload = opened.enter_context(self._store.open_payload(entry))
                if payload is None:
                    return False
                payloads.append(payload)
            refused = self._put_in_place(blocks, checkpoint, payloads, ids[:target])
        if refused is not None:
            self._store.reject(refused)
        if self._sequence.awaits_checkpoint:
            self._sequence.clear()
            self._num_kept = 0
        return refused is None

    def _restore_blocks(self, blocks: ListOf[tuple[Block, ListOf[TokenId]]]) -> bool:
        """For models without checkpoints: each block is whole by itself, and what came before a damaged one stays."""
        assert self._store is not None
        entries = [block for block, _ in blocks]
        with self._sequence.several_appends(), closing(self._store.each_payload(entries)) as payloads:
            for (block, rows), payload in zip(blocks, payloads, strict=True):
                if payload is None:
                    return False
                if not restore_block(self._sequence, payload, block.start, rows):
                    self._store.reject(block)
                    return False
        return True

    def _put_in_place(
        self,
        blocks: ListOf[tuple[Block, ListOf[TokenId]]],
        checkpoint: Checkpoint,
        payloads: ListOf[StateBytes],
        ids: ListOf[TokenId],
    ) -> StoredEntry | None:
        """What the library refused. payloads: of the blocks, and then the checkpoint's."""
        for number, (block, rows) in enumerate(blocks):
            if not restore_block(self._sequence, payloads[number], block.start, rows):
                return block
        fits = restore_checkpoint(self._sequence, payloads[-1], ids)
        if self._kind == StateKind.CHECKPOINTS_ONLY or not self._sequence.num_tokens:
            self._num_kept = 0
        return None if fits else checkpoint

    def _restore_whole(self, tokens: TokenArray, in_memory: int) -> None:
        """For a state whose layout is not known."""
        if self._store is None or self._fingerprint is None:
            return
        match = self._store.match_whole(
            self._fingerprint, tokens, self._rule, max_hit_length=int(tokens.size) - 1
        )
        if match is None or match.num_cached_tokens <= in_memory or match.sequence.token_ids is None:
            return
        with self._store.open_payload(match.sequence) as payload:
            if payload is None:
                return
            fits = self._sequence.write_state(payload, match.sequence.token_ids.tolist())
        self._num_kept = 0
        if not fits:
            self._store.reject(match.sequence)

    # --- keeping -----------------------------------------------------------------------------------

    def keep_one_block(self) -> None:
        """Between two batches: copy out one block that is closed and not stored yet, if there is one."""
        if not self._ranges and self._sequence.num_tokens >= self._planned_tokens + _MAX_BLOCK_TOKENS:
            self._plan(closed_only=True)
        if self._ranges:
            self._keep(self._ranges.popleft())

    def keep_checkpoint(self, kind: CheckpointKind) -> None:
        """Copy out what cannot be cut, valid at exactly the present position."""
        sequence = self._sequence
        if self._store is None or self._fingerprint is None or not self.has_checkpoints:
            return
        if not sequence.num_tokens or sequence.awaits_checkpoint:
            return
        tokens = token_array(sequence.token_ids)
        try:
            payload = capture_checkpoint(sequence)
        except (IncompleteState, UnknownLayout) as error:
            _logger.warning("no checkpoint at %d: %s", sequence.num_tokens, error)
            return
        self._store.store_checkpoint(self._fingerprint, tokens, int(tokens.size), payload, kind=kind)

    def keep_all(self) -> None:
        """At the end of a turn, however it ended: every row in the sequence is whole, the unfinished tail too."""
        sequence = self._sequence
        if (
            self._store is None
            or self._fingerprint is None
            or not sequence.num_tokens
            or sequence.awaits_checkpoint
        ):
            return
        if self._owner is not None:
            self._store.set_reference(self._owner, self._fingerprint, token_array(sequence.token_ids))
        if self._kind == StateKind.WHOLE:
            self._store.store_whole(
                self._fingerprint,
                token_array(sequence.token_ids),
                sequence.read_state(),
                pos_min=sequence.state_pos_min(),
                rule=self._rule,
            )
            return
        if self._rates is not None:
            self._rates.save()
        self._plan(closed_only=False)
        while self._ranges:
            self._keep(self._ranges.popleft())
        self.keep_checkpoint("turn")

    def _plan(self, *, closed_only: bool) -> None:
        sequence = self._sequence
        if (
            self._store is None
            or self._fingerprint is None
            or self._kind
            not in (
                StateKind.BLOCKS,
                StateKind.BLOCKS_AND_CHECKPOINTS,
            )
        ):
            return
        ranges = self._store.missing_ranges(self._fingerprint, token_array(sequence.token_ids), self._cuts)
        if closed_only:
            ranges = [r for r in ranges if r.end in self._cuts or r.end - r.start == _MAX_BLOCK_TOKENS]
        self._ranges = deque(ranges)
        self._planned_tokens = ranges[-1].end if ranges else sequence.num_tokens

    def _keep(self, block: BlockRange) -> None:
        assert self._store is not None
        assert self._fingerprint is not None
        sequence = self._sequence
        if block.end > sequence.num_tokens:
            return  # taken back since it was planned
        try:
            payload = capture_block(sequence, block.start, block.end)
        except (IncompleteState, UnknownLayout) as error:
            _logger.warning("rows [%d, %d) are not stored: %s", block.start, block.end, error)
            self._ranges.clear()
            return
        tokens = token_array(sequence.token_ids)
        if not self._store.store_block(self._fingerprint, tokens, block.start, block.end, payload, cut_rows):
            # The writer cannot follow: the next turn stores what this one could not.
            self._ranges.clear()
