"""Reading what will probably be asked next: a chat that was opened, a draft that is being typed."""

from __future__ import annotations

from dataclasses import replace

from inference.kvcache.block_store import BlockStore
from inference.llama.sequence import Sequence
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.prompt import Prompt
from inference.stored_sequence import StoredSequence

# Tokens that a template may put behind the last message's text.
_MOST_BEHIND_TEXT = 32


def draft_part(prompt: Prompt) -> Prompt:
    """The prompt up to the end of its last message's text: what follows there depends on what will be typed next."""
    end = prompt.user_end or 0
    draft = list(prompt.message_ids[-1] or ()) if prompt.message_ids else []
    if not draft:
        # Where the template changed the text, nothing of it is certain.
        end = max((cut for cut in prompt.message_ends if cut < end), default=0)
    for stop in range(end, max(0, end - _MOST_BEHIND_TEXT), -1):
        if draft and prompt.token_ids[stop - len(draft) : stop] == draft:
            end = stop
            break
    return replace(prompt, token_ids=prompt.token_ids[:end])


class TypeAhead:
    """Brings a prompt's beginning from the store, and where a draft is being typed prefills the rest.

    Nothing of it is stored: rows of a draft that is never sent are nobody's.
    """

    def __init__(
        self, loaded: LoadedModel, store: BlockStore | None, prompt: Prompt, *, prefills: bool
    ) -> None:
        """prompt: of a draft up to where its tokens are certain. prefills false: only bring what is stored."""
        self._loaded, self._store = loaded, store
        self._prompt, self._prefills = prompt, prefills
        self.sequence: Sequence | None = None
        self.prefilled_tokens = 0

    @property
    def token_ids(self) -> list[TokenId]:
        return self._prompt.token_ids

    def join(self, sequence: Sequence) -> None:
        self.sequence = sequence
        StoredSequence(self._loaded, sequence, self._store, None).bring(self._prompt)

    def step(self) -> bool:
        """Decode the next chunk. False: there is nothing left to read. Raises EngineError, DecodeAborted."""
        assert self.sequence is not None
        if not self._prefills:
            return False
        position, size = self.sequence.num_tokens, self._loaded.context.params.n_ubatch
        chunk = self.token_ids[position : (position // size + 1) * size]
        if not chunk:
            return False
        self.prefilled_tokens += len(chunk)
        self.sequence.decode(chunk, want_logits=False)
        return self.sequence.num_tokens < len(self.token_ids)
