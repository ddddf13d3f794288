"""Messages as transcript rows: the stored ones, and the reply that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from desktop.chat.memory_mark import MemoryView
from desktop.chat.refusal_words import CONTINUE, CONTINUE_DROPPING, larger_context_words, refusal_actions
from desktop.chat.reply_caption import reasoning_words, reply_caption
from desktop.chat.reply_receipt import reply_receipt
from desktop.chat.transcript_message import MessageState, ShownReasoning, TranscriptMessage
from desktop.chat.turn import Turn
from desktop.conversations import ChatContext, ContextChoice, KeptFit, MessageStatus, StoredMessage
from desktop.wording import as_sentence
from inference import ErrorCode, FinishReason, Phase, Reasoning

RETRY = ("retry", "Try again")
FIND_MODEL = ("find_model", "Find it…")
CHOOSE_MODEL = ("choose_model", "Choose another model")
CHOOSE_TEMPLATE = ("choose_template", "Choose a format")

_MODEL_ERRORS = (ErrorCode.MODEL_NOT_FOUND, ErrorCode.MODEL_INVALID, ErrorCode.MODEL_LOAD_FAILED)
_STATES: dict[MessageStatus, MessageState] = {
    MessageStatus.STREAMING: "interrupted",
    MessageStatus.COMPLETE: "done",
    MessageStatus.CANCELLED: "cancelled",
    MessageStatus.INTERRUPTED: "interrupted",
    MessageStatus.FAILED: "failed",
}


def stored_rows(
    branch: Sequence[StoredMessage], turns: Sequence[Turn], context: ChatContext, *, is_private: bool
) -> list[TranscriptMessage]:
    """The rows of a chat as it is opened; a reply under way shows what its turn knows."""
    by_reply = {turn.question.reply_id: turn for turn in turns}
    rows = []
    for message in branch:
        turn = by_reply.get(message.id)
        is_last = message is branch[-1]
        if turn is not None:
            rows.append(turn_row(turn, is_last=is_last, is_private=is_private))
        else:
            rows.append(_stored_row(message, context, is_last=is_last, is_private=is_private))
    memory = MemoryView(context.last_fit([message.id for message in branch]), context.pinned)
    return [memory.shown(row) for row in rows]


def user_row(message: StoredMessage) -> TranscriptMessage:
    return TranscriptMessage(message.id, "user", message.content)


def shown_reasoning(reasoning: Reasoning | None, *, is_streaming: bool = False) -> ShownReasoning | None:
    if reasoning is None:
        return None
    is_open = is_streaming and reasoning.was_cut
    return ShownReasoning(reasoning.text, reasoning_words(reasoning, is_open=is_open))


def turn_row(turn: Turn, *, is_private: bool, is_last: bool = True) -> TranscriptMessage:
    """The reply of a turn. Only the last message of a chat can be tried again."""
    row = _turn_row(turn, is_private=is_private, is_last=is_last)
    return replace(row, reasoning=shown_reasoning(turn.reasoning, is_streaming=turn.answering))


def _turn_row(turn: Turn, *, is_private: bool, is_last: bool) -> TranscriptMessage:
    key = turn.question.reply_id
    if turn.failed is not None:
        died = turn.failed.code is ErrorCode.ENGINE_DIED
        actions = _failure_actions(Path(turn.question.model.path), turn.failed.code in _MODEL_ERRORS)
        if turn.failed.code is ErrorCode.PROMPT_TOO_LONG and turn.fit is not None:
            actions = refusal_actions(turn.fit, has_text=turn.question.begun is not None)
        if turn.failed.code is ErrorCode.TEMPLATE_FAILED:
            actions = (CHOOSE_TEMPLATE, *actions)
        return TranscriptMessage(
            key,
            "assistant",
            turn.text,
            "interrupted" if died else "failed",
            error=_refusal(turn.failed.message, turn.fit),
            actions=actions if is_last else (),
        )
    if turn.finished is not None:
        finished = turn.finished
        stopped = finished.finish_reason is FinishReason.CANCELLED
        caption = reply_caption(
            finish_reason=finished.finish_reason,
            counts=finished.counts,
            ttft_s=finished.timings.ttft_s,
            decode_tokens_per_second=finished.decode_tokens_per_second,
        )
        return TranscriptMessage(
            key,
            "assistant",
            turn.text,
            "cancelled" if stopped else "done",
            caption,
            reply_receipt(
                counts=finished.counts,
                timings=finished.timings,
                bytes_read=finished.bytes_read,
                miss=finished.miss,
                is_private=is_private,
                template=finished.template,
            ),
            actions=_end_actions(finished.finish_reason, bool(turn.text), turn.choice) if is_last else (),
        )
    if not turn.answering:
        actions = _end_actions(FinishReason.CANCELLED, bool(turn.text), turn.choice)
        return TranscriptMessage(
            key, "assistant", turn.text, "cancelled", "Stopped", actions=actions if is_last else ()
        )
    match turn.phase:
        case Phase.QUEUED:
            return TranscriptMessage(key, "assistant", turn.text, "queued", "Waiting for the model")
        case Phase.LOADING:
            return TranscriptMessage(
                key, "assistant", turn.text, "queued", "Waiting until the model is loaded"
            )
        case Phase.RESTORING | Phase.PREFILL:
            return TranscriptMessage(key, "assistant", turn.text, "reading")
        case Phase.DECODE:
            return TranscriptMessage(key, "assistant", turn.text, "writing")


def _stored_row(
    message: StoredMessage, context: ChatContext, *, is_last: bool, is_private: bool
) -> TranscriptMessage:
    if message.role == "user":
        # A message without even an empty reply: the app was killed between the two.
        return TranscriptMessage(message.id, "user", message.content, actions=(RETRY,) if is_last else ())
    caption = reply_caption(
        finish_reason=message.finish_reason,
        counts=message.counts,
        ttft_s=None if message.timings is None else message.timings.ttft_s,
        decode_tokens_per_second=message.decode_tokens_per_second,
    )
    fit = context.fits.get(message.id)
    error = _refusal(message.error or "", fit)
    if message.status in (MessageStatus.INTERRUPTED, MessageStatus.STREAMING):
        # Nothing is wrong any more: a quiet line, no card.
        caption, error = error, ""
    actions: tuple[tuple[str, str], ...] = ()
    failed = message.status is MessageStatus.FAILED
    if is_last and failed and fit is not None and not fit.is_allowed:
        actions = refusal_actions(fit, has_text=bool(message.content))
    elif is_last and failed:
        path = Path(message.model_path or "")
        actions = _failure_actions(path, not path.is_file())
    elif is_last:
        cut = message.status is not MessageStatus.COMPLETE
        reason = FinishReason.CANCELLED if cut else message.finish_reason
        actions = _end_actions(reason, bool(message.content), context.choice)
    return TranscriptMessage(
        message.id,
        "assistant",
        message.content,
        _STATES[message.status],
        caption,
        reply_receipt(
            counts=message.counts,
            timings=message.timings,
            bytes_read=message.bytes_read,
            miss=message.miss,
            is_private=is_private,
            template=message.template,
        ),
        error=error,
        actions=actions,
        reasoning=shown_reasoning(message.reasoning),
    )


def _refusal(message: str, fit: KeptFit | None) -> str:
    """Why a reply was refused, and what it would take where its prompt was too long."""
    error = as_sentence(message)
    if error and fit is not None and not fit.is_allowed:
        error = f"{error} {larger_context_words(fit)}".strip()
    return error


def _end_actions(
    reason: FinishReason | None, has_text: bool, choice: ContextChoice
) -> tuple[tuple[str, str], ...]:
    """Of the last reply, which was not refused: it may go on."""
    match reason:
        case FinishReason.CANCELLED:
            return (CONTINUE, RETRY) if has_text else (RETRY,)
        case FinishReason.LENGTH:
            return (CONTINUE,)
        case FinishReason.CONTEXT if choice is ContextChoice.DROP_OLDEST:
            return (CONTINUE,)
        case FinishReason.CONTEXT if choice is ContextChoice.ASK:
            return (CONTINUE_DROPPING,)
        case _:
            return ()


def _failure_actions(model_path: Path, is_model_error: bool) -> tuple[tuple[str, str], ...]:
    if not is_model_error:
        return (RETRY,)
    if not model_path.is_file():
        return (FIND_MODEL, CHOOSE_MODEL, RETRY)
    return (CHOOSE_MODEL, RETRY)
