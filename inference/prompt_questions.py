"""What can be told of a prompt without decoding any of it."""

from __future__ import annotations

from inference.context_fit import count_prompt
from inference.events import PrefixExplained, PromptCounted
from inference.kvcache.block_store import BlockStore
from inference.loaded_model import LoadedModel
from inference.miss import explain_miss
from inference.request import GenerationRequest
from inference.stored_sequence import StoredSequence


def count(loaded: LoadedModel, request: GenerationRequest) -> PromptCounted:
    """How it would fit into the context. Raises EngineError."""
    fit = count_prompt(loaded.prompt_builder, request, loaded.context_size)
    return PromptCounted(request.request_id, fit)


def explain(loaded: LoadedModel, store: BlockStore | None, request: GenerationRequest) -> PrefixExplained:
    """What the store has of it. Raises EngineError."""
    prompt = loaded.prompt_builder.build(request)
    sequence = StoredSequence(loaded, loaded.context.sequences[0], store, None)
    found = sequence.look_up(prompt)
    return PrefixExplained(
        request_id=request.request_id,
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
