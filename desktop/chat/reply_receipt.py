"""A reply's receipt: where the prompt's tokens came from, what took how long, and why anything was read.

docs/receipts.md explains every word of it.
"""

from __future__ import annotations

from desktop.chat.template_words import template_words
from desktop.chat.transcript_message import Detail
from desktop.quantities import format_bytes, format_count, format_seconds
from inference import Miss, MissReason, PromptCounts, RequestTimings, TemplateUse

PRIVATE_WORDS = "This chat is private: nothing of it is kept on disk, and nothing is looked up there."


def reply_receipt(
    *,
    counts: PromptCounts | None,
    timings: RequestTimings | None,
    bytes_read: int | None,
    miss: Miss | None,
    is_private: bool,
    template: TemplateUse | None = None,
) -> tuple[Detail, ...]:
    """Empty for a reply that was killed; bytes_read is None for one from before receipts."""
    if counts is None or timings is None:
        return ()
    restored = [f"{_tokens(counts.restored_tokens)} from disk"]
    if bytes_read:
        restored.append(f"{format_bytes(bytes_read)} read")
    restored.append(format_seconds(timings.restore_s))
    read = f"{_tokens(counts.prefilled_tokens)} · {format_seconds(timings.prefill_s)}"
    waited = f"{format_seconds(timings.queued_s)} in the queue · {format_seconds(timings.load_s)} for the model to load"
    details = [
        Detail("Reused", f"{_tokens(counts.reused_tokens)} in memory", "reused"),
        Detail("Restored", " · ".join(restored), "restored"),
        Detail("Read (prefill)", read, "prefilled"),
        Detail("Waited", waited),
    ]
    if timings.ttft_s is not None:
        details.append(Detail("First token", f"{format_seconds(timings.ttft_s)}, waiting not counted"))
    if is_private:
        details.append(Detail("Why", PRIVATE_WORDS))
    # Memory may have had more than the store: then nothing was read for want of what the store lacks.
    elif miss is not None and miss.position >= counts.reused_tokens + counts.restored_tokens:
        details.append(Detail("Why", miss_words(miss)))
    if template is not None:
        details.append(Detail("Template", template_words(template)))
    return tuple(details)


def miss_words(miss: Miss) -> str:
    position = format_count(miss.position)
    here, stored = _quoted(miss.prompt_text), _quoted(miss.stored_text or "")
    match miss.reason:
        case MissReason.NOTHING_STORED:
            return f"Read from token {position}, {here}: the store had nothing from there on."
        case MissReason.EVICTED:
            return (
                f"Read again from token {position}, {here}: it had been stored and was removed "
                "to keep the store within its size."
            )
        case MissReason.OTHER_MODEL_BUILD:
            return (
                f"Read again from token {position}, {here}: it had been read by another build of the engine's library, "
                "whose memory this one does not use."
            )
        case MissReason.OTHER_SETTINGS:
            return (
                f"Read again from token {position}, {here}: it had been read with other settings of the model's memory "
                "(K/V types, for instance), and what is stored fits those only."
            )
        case MissReason.TEXT_DIFFERS:
            return f"Read from token {position}: the store goes on with {stored} where this chat says {here}."
        case MissReason.SYSTEM_PROMPT_DIFFERS:
            return (
                f"Read from token {position}, in the system prompt: the store goes on with {stored} "
                f"where this chat says {here}."
            )
        case MissReason.TOKENISED_OTHERWISE:
            return (
                f"Read again from token {position}: most likely the same words, cut into other tokens, "
                f"{stored} in the store and {here} in this chat."
            )
        case MissReason.MESSAGE_ENDS_ONLY:
            return (
                f"Read again from token {position}, {here}: more is stored, "
                "but this model can go on only from where a message ended."
            )
        case MissReason.NOT_RESTORED:
            return (
                f"Read again from token {position}, {here}: more is stored, but reading it from this disk was "
                "expected to take longer, or failed."
            )


def _tokens(count: int) -> str:
    return f"{format_count(count)} {'token' if count == 1 else 'tokens'}"


def _quoted(text: str) -> str:
    """A token's text with what would not be seen made visible."""
    return "“" + text.replace("\n", "↵").replace("\t", "⇥") + "”"
