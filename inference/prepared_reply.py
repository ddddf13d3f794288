"""What a reply needs before anything of it is computed: the prompt's token ids, and a sampler that knows them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from inference.context_fit import fit_prompt
from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.prompt import Prompt
from inference.reply_text import ReplyText
from inference.request import ContextFit, GenerationRequest


@dataclass(frozen=True, slots=True)
class PreparedReply:
    """text: empty, or the begun reply that goes on, whose ids are begun_ids. started_at: time.monotonic(), seconds.
    tokenize_s: what it took. Whoever gets it closes the sampler."""

    prompt: Prompt
    begun_ids: tuple[TokenId, ...]
    fit: ContextFit | None
    text: ReplyText
    sampler: Sampler
    started_at: float
    tokenize_s: float


def prepare_reply(loaded: LoadedModel, request: GenerationRequest) -> PreparedReply:
    """On any thread, but one at a time; decodes nothing. Raises EngineError."""
    started_at = time.monotonic()
    fitted = fit_prompt(loaded.prompt_builder, request, loaded.context_size)
    tokenize_s = time.monotonic() - started_at
    prompt, model = fitted.prompt, loaded.model
    opening = None if request.messages is None else prompt.reply_opening
    text = ReplyText(model.vocab, opening, request.sampling.stop)
    answer_ids: list[TokenId] = []
    if request.begun is not None:
        answer_ids = text.go_on_behind(fitted.begun_ids, request.begun.content)
    sampling = loaded.sampling_defaults.completed(request.sampling)
    sampler = Sampler(model.llama, sampling, prompt.token_ids, model, answer_ids)
    return PreparedReply(prompt, fitted.begun_ids, fitted.fit, text, sampler, started_at, tokenize_s)
