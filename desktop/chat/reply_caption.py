"""The lines above and under a reply: how long was thought, how it ended, what it cost."""

from __future__ import annotations

from desktop.quantities import format_count, format_rate, format_seconds
from inference import FinishReason, PromptCounts, Reasoning

_END_WORDS = {
    FinishReason.CANCELLED: "Stopped",
    FinishReason.LENGTH: "Reply limit reached",
    FinishReason.CONTEXT: "Context full",
}


def reasoning_words(reasoning: Reasoning, *, is_open: bool) -> str:
    """is_open: it may still go on."""
    if not reasoning.num_tokens and not is_open:
        # Imported from a program that counts no tokens.
        return f"Thought for {format_seconds(reasoning.seconds)}" if reasoning.seconds else "Thoughts"
    if is_open:
        how = f"Thinking · {format_seconds(reasoning.seconds)}"
    elif reasoning.was_cut:
        how = f"Thinking was cut off after {format_seconds(reasoning.seconds)}"
    else:
        how = f"Thought for {format_seconds(reasoning.seconds)}"
    return f"{how} · {format_count(reasoning.num_tokens)} tokens"


def reply_caption(
    *,
    finish_reason: FinishReason | None = None,
    counts: PromptCounts | None = None,
    ttft_s: float | None = None,
    decode_tokens_per_second: float | None = None,
) -> str:
    """Only what is known is said: a reply that was killed has no figures."""
    parts: list[str] = []
    if finish_reason in _END_WORDS:
        parts.append(_END_WORDS[finish_reason])
    if counts is not None:
        parts.append(f"reused {format_count(counts.reused_tokens)}")
        parts.append(f"restored {format_count(counts.restored_tokens)}")
        parts.append(f"read {format_count(counts.prefilled_tokens)}")
    if ttft_s is not None:
        parts.append(f"first token {format_seconds(ttft_s)}")
    if decode_tokens_per_second is not None:
        parts.append(format_rate(decode_tokens_per_second))
    return " · ".join(parts)
