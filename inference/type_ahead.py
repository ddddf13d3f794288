"""Reading what will probably be asked next: a chat that was opened, a draft that is being typed."""

from __future__ import annotations

from inference.kvcache.block_store import BlockStore
from inference.llama.sequence import Sequence
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.prompt import Prompt
from inference.stored_sequence import StoredSequence


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
