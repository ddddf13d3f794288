"""Reading what will probably be asked next: a chat that was opened, a draft that is being typed."""

from __future__ import annotations

from dataclasses import replace

from inference.kvcache.block_store import BlockStore
from inference.llama.sequence import Sequence
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.prompt import Prompt
from inference.request import ReadAhead
from inference.stored_sequence import StoredSequence

# Tokens that a template may put behind the last message's text.
_MOST_BEHIND_TEXT = 32


def _up_to_text(prompt: Prompt) -> Prompt:
    """The prompt up to the end of its last message's text: what follows there depends on what will be typed next."""
    if not prompt.message_ids:
        return prompt
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
    """Brings a prompt's beginning from the store, and prefills the rest if it is to.

    Nothing of it is stored: rows of a draft that is never sent are nobody's.
    """

    def __init__(
        self, loaded: LoadedModel, store: BlockStore | None, prompt: Prompt, how_much: ReadAhead
    ) -> None:
        self._loaded, self._store = loaded, store
        self._prompt = _up_to_text(prompt) if how_much == ReadAhead.WORDS else prompt
        self._how_much = how_much
        self.sequence: Sequence | None = None
        self.prefilled_tokens = 0

    @property
    def token_ids(self) -> list[TokenId]:
        return self._prompt.token_ids

    def join(self, sequence: Sequence) -> None:
        self.sequence = sequence
        StoredSequence(self._loaded, sequence, self._store, None).bring(self._prompt)

    def step(self, chunk_size: int) -> bool:
        """Decode the next chunk. False: there is nothing left to read. Raises EngineError, DecodeAborted."""
        assert self.sequence is not None
        if self._how_much == ReadAhead.STORED:
            return False
        position = self.sequence.num_tokens
        # A prompt's last token is decoded when it is asked, for its logits.
        end = len(self.token_ids) - (self._how_much == ReadAhead.ALL)
        chunk = self.token_ids[position : min(end, (position // chunk_size + 1) * chunk_size)]
        if not chunk:
            return False
        self.prefilled_tokens += len(chunk)
        self.sequence.decode(chunk, want_logits=False)
        return self.sequence.num_tokens < end
