"""How much of a prompt the store has, and how much of it came to be in memory."""

from __future__ import annotations

from dataclasses import dataclass

from inference.kvcache.prefix_match import MissCause


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """What the store has of a prompt: num_usable of num_stored tokens, for bytes_to_read. miss: why no more."""

    num_stored: int
    num_usable: int
    bytes_to_read: int
    miss: MissCause | None


@dataclass(frozen=True, slots=True)
class BroughtPrefix:
    """The first reused + restored tokens of the prompt are in memory now. miss: why there is no more in the store.

    num_stored: tokens that are stored or in memory, though a model with checkpoints may have to start before their end.
    """

    reused_tokens: int
    restored_tokens: int
    num_stored: int
    miss: MissCause | None
