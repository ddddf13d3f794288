"""What can be told of a prompt without decoding any of it: how much of it is stored."""

from __future__ import annotations

from inference.events import PrefixExplained
from inference.kvcache.block_store import BlockStore
from inference.loaded_model import LoadedModel
from inference.miss import explain_miss
from inference.prompt import Prompt
from inference.request import RequestId
from inference.stored_sequence import StoredSequence


def explain(
    loaded: LoadedModel, store: BlockStore | None, request_id: RequestId, prompt: Prompt
) -> PrefixExplained:
    """What the store has of it. Raises EngineError."""
    sequence = StoredSequence(loaded, loaded.context.sequences[0], store, None)
    found = sequence.look_up(prompt)
    return PrefixExplained(
        request_id=request_id,
        num_prompt_tokens=len(prompt.token_ids),
        num_stored_tokens=found.num_stored,
        num_usable_tokens=found.num_usable,
        bytes_to_read=found.bytes_to_read,
        miss=explain_miss(
            found.miss,
            prompt,
            loaded.model.vocab,
            num_stored=found.num_stored,
            num_usable=found.num_usable,
            has_checkpoints=sequence.has_checkpoints,
        ),
    )
