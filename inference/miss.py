"""Why a prompt, or part of it, was read again: what a reply's receipt says about the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference.kvcache.prefix_match import MissCause
from inference.llama.vocab import Vocab
from inference.messages import TokenId
from inference.prompt import Prompt


class MissReason(StrEnum):
    """The words are explained in docs/receipts.md."""

    NOTHING_STORED = "nothing stored"
    EVICTED = "evicted"
    OTHER_MODEL_BUILD = "other model build"
    OTHER_SETTINGS = "other settings"
    TEXT_DIFFERS = "text differs"
    SYSTEM_PROMPT_DIFFERS = "system prompt differs"
    TOKENISED_OTHERWISE = "tokenised otherwise"
    MESSAGE_ENDS_ONLY = "message ends only"
    NOT_RESTORED = "not restored"


@dataclass(frozen=True, slots=True)
class Miss:
    """What is stored of a prompt could be used up to token `position`, and not further.

    prompt_text: the prompt's token there. stored_text: the token that the store has in its place, if it has one.
    """

    reason: MissReason
    position: int
    prompt_text: str
    stored_text: str | None = None


def explain_miss(
    cause: MissCause | None,
    prompt: Prompt,
    vocab: Vocab,
    *,
    num_stored: int,
    num_usable: int,
    has_checkpoints: bool,
) -> Miss | None:
    """None: nothing was read again but the last token. cause: as the store told it. num_stored tokens of the prompt
    are stored, num_usable were used. has_checkpoints: the model can only go on from certain positions."""

    def text_of(token_id: int) -> str:
        return vocab.written_piece(TokenId(token_id)).decode("utf-8", "replace")

    if num_usable < num_stored:
        reason = MissReason.MESSAGE_ENDS_ONLY if has_checkpoints else MissReason.NOT_RESTORED
        return Miss(reason, num_usable, text_of(prompt.token_ids[num_usable]))
    if cause is None:
        return None
    prompt_text = text_of(cause.prompt_token_id)
    stored_text = None if cause.stored_token_id is None else text_of(cause.stored_token_id)
    reason = _reason(cause, prompt.system_end, prompt_text, stored_text)
    return Miss(reason, cause.position, prompt_text, stored_text)


def _reason(
    cause: MissCause, system_end: int | None, prompt_text: str, stored_text: str | None
) -> MissReason:
    match cause.reason:
        case "evicted":
            return MissReason.EVICTED
        case "other_build":
            return MissReason.OTHER_MODEL_BUILD
        case "other_settings":
            return MissReason.OTHER_SETTINGS
    if stored_text is None:
        return MissReason.NOTHING_STORED
    if stored_text.startswith(prompt_text) or prompt_text.startswith(stored_text):
        # One goes on where the other ends: most likely the same words, cut at other places.
        return MissReason.TOKENISED_OTHERWISE
    if system_end is not None and cause.position < system_end:
        return MissReason.SYSTEM_PROMPT_DIFFERS
    return MissReason.TEXT_DIFFERS
