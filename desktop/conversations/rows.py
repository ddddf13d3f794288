"""Between records and the rows they are stored as."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any

from desktop.conversations.records import (
    ChatSettings,
    Conversation,
    ConversationId,
    MessageId,
    MessageStatus,
    StoredMessage,
)
from inference import (
    FinishReason,
    Miss,
    MissReason,
    PromptCounts,
    Reasoning,
    RequestTimings,
    SamplingParams,
    TemplateUse,
    TokenId,
)

Row = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Each member of these two records is a column of the same name.
_COUNT_COLUMNS = tuple(column.name for column in fields(PromptCounts))
_TIMING_COLUMNS = tuple(column.name for column in fields(RequestTimings))
_MISS_REASONS = {reason.value: reason for reason in MissReason}
_count_values = itemgetter(*_COUNT_COLUMNS)
_timing_values = itemgetter(*_TIMING_COLUMNS)


def now_us() -> int:
    """Microseconds since 1970 UTC."""
    return to_us(datetime.now(UTC))


def to_us(moment: datetime) -> int:
    """`moment` must be aware of its time zone."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def clean_text(text: str) -> str:
    """What UTF-8 can hold: surrogate pairs joined, single surrogates (they come from UTF-16 input) replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_optional(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def encode_token_ids(token_ids: Sequence[TokenId] | None) -> bytes | None:
    return None if token_ids is None else struct.pack(f"<{len(token_ids)}i", *token_ids)


def decode_token_ids(packed: bytes | None) -> tuple[TokenId, ...] | None:
    return None if packed is None else struct.unpack(f"<{len(packed) // 4}i", packed)


def encode_sampling(sampling: SamplingParams | None) -> str | None:
    return None if sampling is None else json.dumps(asdict(sampling))


# Most replies of a chat share their settings, and the value is frozen.
@lru_cache(maxsize=64)
def decode_sampling(text: str | None) -> SamplingParams | None:
    if text is None:
        return None
    stored = json.loads(text)
    known = {parameter.name for parameter in fields(SamplingParams)}
    return SamplingParams(**{name: value for name, value in stored.items() if name in known})


def encode_counts(counts: PromptCounts | None) -> dict[str, int | None]:
    return dict.fromkeys(_COUNT_COLUMNS) if counts is None else asdict(counts)


def encode_timings(timings: RequestTimings | None) -> dict[str, float | None]:
    return dict.fromkeys(_TIMING_COLUMNS) if timings is None else asdict(timings)


def encode_miss(miss: Miss | None) -> dict[str, str | int | None]:
    return {
        "miss_reason": None if miss is None else miss.reason.value,
        "miss_position": None if miss is None else miss.position,
        "miss_prompt_text": None if miss is None else clean_text(miss.prompt_text),
        "miss_stored_text": None if miss is None else clean_optional(miss.stored_text),
    }


def encode_reasoning(reasoning: Reasoning | None) -> dict[str, str | int | float | None]:
    return {
        "reasoning": None if reasoning is None else clean_text(reasoning.text),
        "reasoning_tokens": None if reasoning is None else reasoning.num_tokens,
        "reasoning_s": None if reasoning is None else reasoning.seconds,
        "reasoning_was_cut": None if reasoning is None else reasoning.was_cut,
    }


def decode_reasoning(row: Row) -> Reasoning | None:
    if row["reasoning"] is None:
        return None
    return Reasoning(
        row["reasoning"], row["reasoning_tokens"], row["reasoning_s"], bool(row["reasoning_was_cut"])
    )


def decode_miss(row: Row) -> Miss | None:
    # The engine may learn new reasons; a reply that has one must not make its chat unreadable here.
    reason = _MISS_REASONS.get(row["miss_reason"])
    if reason is None:
        return None
    return Miss(reason, row["miss_position"], row["miss_prompt_text"], row["miss_stored_text"])


def encode_settings(settings: ChatSettings) -> dict[str, str | None]:
    return {
        "system_prompt": clean_text(settings.system_prompt),
        "sampling": json.dumps(dict(settings.sampling)),
        "template": clean_optional(settings.template),
        "template_options": json.dumps(dict(settings.template_options)),
    }


def decode_settings(row: Row) -> ChatSettings:
    return ChatSettings(
        system_prompt=row["system_prompt"],
        sampling=_usable(json.loads(row["sampling"] or "{}")),
        template=row["template"],
        template_options=json.loads(row["template_options"]),
    )


def _usable(stored: dict[str, Any]) -> dict[str, Any]:
    """Without what this version does not know or allow: one value must not make its chat unreadable."""
    values: dict[str, Any] = {}
    for name in stored.keys() & {parameter.name for parameter in fields(SamplingParams)}:
        with contextlib.suppress(ValueError):
            values[name] = getattr(SamplingParams(**{name: stored[name]}), name)
    return values


def encode_template_use(template: TemplateUse) -> dict[str, str]:
    return {"template_source": template.source, "template_mends": json.dumps(template.mends)}


# Nearly all replies of a chat have the same.
@lru_cache(maxsize=64)
def decode_template_use(source: str | None, mends: str | None) -> TemplateUse | None:
    return None if source is None else TemplateUse(source, tuple(json.loads(mends or "[]")))


def conversation_from(row: Row) -> Conversation:
    return Conversation(
        id=ConversationId(row["id"]),
        title=row["title"],
        created_at=from_us(row["created_at"]),
        updated_at=from_us(row["updated_at"]),
        model_path=row["model_path"],
        settings=decode_settings(row),
        head_id=row["head_id"],
        draft=row["draft"],
        deleted_at=None if row["deleted_at"] is None else from_us(row["deleted_at"]),
        owner=row["owner"],
        is_private=bool(row["is_private"]),
        is_pinned=bool(row["is_pinned"]),
        folder_id=row["folder_id"],
        is_archived=bool(row["is_archived"]),
        is_on_top=bool(row["is_on_top"]),
    )


def message_from(row: Row) -> StoredMessage:
    return StoredMessage(
        id=MessageId(row["id"]),
        conversation_id=ConversationId(row["conversation_id"]),
        parent_id=row["parent_id"],
        role=row["role"],
        content=row["content"],
        token_ids=decode_token_ids(row["token_ids"]),
        status=MessageStatus(row["status"]),
        created_at=from_us(row["created_at"]),
        updated_at=from_us(row["updated_at"]),
        error=row["error"],
        model_path=row["model_path"],
        sampling=decode_sampling(row["sampling"]),
        seed=row["seed"],
        finish_reason=None if row["finish_reason"] is None else FinishReason(row["finish_reason"]),
        counts=_counts_from(row),
        timings=_timings_from(row),
        num_generation_tokens=row["num_generation_tokens"],
        decode_tokens_per_second=row["decode_tokens_per_second"],
        bytes_read=row["bytes_read"],
        miss=decode_miss(row),
        reasoning=decode_reasoning(row),
        template=decode_template_use(row["template_source"], row["template_mends"]),
    )


def _counts_from(row: Row) -> PromptCounts | None:
    if row["num_prompt_tokens"] is None:
        return None
    return PromptCounts(*_count_values(row))


def _timings_from(row: Row) -> RequestTimings | None:
    if row["e2e_s"] is None:
        return None
    return RequestTimings(*_timing_values(row))
