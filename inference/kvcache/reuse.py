"""How much of a sequence's state a new prompt may use: the rules of each kind of model, as arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TokenArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ReuseRule:
    """n_swa: tokens of the sliding window, 0 for none. recurrent: state that cannot be rewound (hybrids too)."""

    n_swa: int = 0
    recurrent: bool = False

    def usable_tokens(self, *, num_common: int, num_held: int, pos_min: int, max_hit_length: int) -> int:
        """Leading tokens of a state of num_held tokens that a prompt may use; 0 for none.

        num_common: length of the common prefix of both. pos_min: first position whose rows every layer of the
        state still holds. max_hit_length: the prompt's length without its last token, which is decoded again
        for its logits.
        """
        usable = min(num_common, num_held, max_hit_length)
        if self.recurrent:
            # Valid at exactly one position.
            return usable if usable == num_held else 0
        if self.n_swa > 0 and pos_min > max(0, usable - self.n_swa + 1):
            # Rows that the window at `usable` reaches back to are gone: decode would succeed with wrong logits.
            return 0
        return usable


def common_prefix_length(first: TokenArray, second: TokenArray) -> int:
    """Number of equal leading ids."""
    length = min(first.size, second.size)
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if differs.size else length


def num_leading_equal(first: Sequence[int], second: Sequence[int]) -> int:
    """The same for two lists; quickest where one begins with all of the other, as chats do that go on."""
    length = min(len(first), len(second))
    first, second = first[:length], second[:length]
    return length if first == second else common_prefix_length(token_array(first), token_array(second))


def token_array(token_ids: Sequence[int]) -> TokenArray:
    return np.asarray(token_ids, dtype=np.int32)
