"""What the store answers when it is asked for a prompt's prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inference.kvcache.block import Block, Checkpoint, WholeSequence

MissReason = Literal["different_token", "evicted", "nothing_stored", "other_build", "other_settings"]


@dataclass(frozen=True, slots=True)
class MatchedBlock:
    """The first num_tokens rows of block serve the prompt; of all but a match's last block, all of them."""

    block: Block
    num_tokens: int


@dataclass(frozen=True, slots=True)
class MissCause:
    """Why what is stored of a prompt ends at position.

    different_token: a stored prefix goes on with another token there. evicted: the store had more of this very
    prompt. other_build, other_settings: it has more of this very prompt, read by the same model file, but with another
    build of the library, or with other settings of the KV cache. nothing_stored: it never had, as far as it knows (a
    prompt's new part, or a prefix never seen).
    """

    reason: MissReason
    position: int
    prompt_token_id: int
    stored_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """blocks cover the prompt's first num_tokens tokens without gaps. checkpoints: of this very prompt, ascending,
    also where no blocks lead to them. first_difference: None where everything asked for is stored."""

    blocks: tuple[MatchedBlock, ...]
    num_tokens: int
    checkpoints: tuple[Checkpoint, ...]
    first_difference: MissCause | None


@dataclass(frozen=True, slots=True)
class WholeMatch:
    """num_cached_tokens of the prompt can be taken from a whole sequence's state."""

    sequence: WholeSequence
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Tokens [start, end), to be stored as one block."""

    start: int
    end: int
