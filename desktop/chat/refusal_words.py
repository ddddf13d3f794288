"""What can be done when a chat does not fit into the context: buttons under the message, and what they would do."""

from __future__ import annotations

from desktop.conversations import KeptFit
from desktop.quantities import format_bytes, format_count

DROP_OLDEST = "drop_oldest"
LARGER_CONTEXT = "larger_context"
EDIT = ("edit", "Edit")
CONTINUE = ("continue", "Continue")
CONTINUE_DROPPING = ("continue_dropping", "Continue without the oldest turns")

_REPLY_ROOM = 512


def larger_context(fit: KeptFit) -> int | None:
    """The next doubling that holds the chat and a reply, as far as the model was trained; None: there is none."""
    needed = fit.num_prompt_tokens + _REPLY_ROOM
    size = fit.n_ctx
    while size < needed:
        size *= 2
    size = min(size, fit.n_ctx_train)
    return size if size > max(fit.n_ctx, fit.num_prompt_tokens) else None


def refusal_actions(fit: KeptFit, *, has_text: bool) -> tuple[tuple[str, str], ...]:
    """has_text: the reply was to go on; its question can no longer be edited."""
    actions: list[tuple[str, str]] = []
    if fit.is_possible and fit.left_out:
        count = len(fit.left_out)
        messages = "1 message" if count == 1 else f"{format_count(count)} messages"
        actions.append((DROP_OLDEST, f"Leave out the oldest turns ({messages})"))
    larger = larger_context(fit)
    if larger is not None:
        actions.append((LARGER_CONTEXT, f"Larger context ({format_count(larger)} tokens)"))
    if not has_text:
        actions.append(EDIT)
    return tuple(actions)


def larger_context_words(fit: KeptFit) -> str:
    """What the larger context would cost; empty where it is not offered."""
    larger = larger_context(fit)
    if larger is None:
        return ""
    more = format_bytes((larger - fit.n_ctx) * fit.kv_bytes_per_token)
    return f"This model can take {format_count(larger)} tokens: it is then loaded again, with about {more} more memory."
