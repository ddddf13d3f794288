"""Values of other programs' files, of which nothing is certain: what they are, or nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from desktop.conversations.chat_title import one_line

Object = Mapping[str, Any]

_MAX_TITLE_CHARACTERS = 300
_LATEST_US = 253_370_764_800_000_000
"""The year 9999: what is later is no time."""
# SillyTavern's "2024-5-12@10h32m05s" and "…@10h 32m 05s 123ms".
_DATE_AT = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s")
_MONTH_NAME = re.compile(r"([A-Z][a-z]+) (\d{1,2}), (\d{4}) (\d{1,2}):(\d{2}) ?([ap]m)?", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def as_object(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """NUL ends texts early in many a library; here it is shown."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else ""


def as_title(value: object) -> str:
    return one_line(as_text(value)[:_MAX_TITLE_CHARACTERS])


def as_id(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and abs(value) < 2**63 else ""


def as_seconds(value: object) -> float:
    """A duration; 0: not known."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 0.0
    if isinstance(value, int | float) and 0 < value < 1e9:
        return float(value)
    return 0.0


def as_time_us(value: object) -> int | None:
    """Microseconds since 1970 UTC, of a number in any unit from seconds to nanoseconds or of a text; None: no time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _time_of_text(value)
    if not isinstance(value, int | float) or not 0 < value < 1e20:
        return None
    # Seconds, milliseconds, microseconds and nanoseconds of this century do not overlap.
    for bound, factor in ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1)):
        if value < bound:
            return _in_range(int(value * factor))
    return _in_range(int(value // 1000))


def _in_range(microseconds: int) -> int | None:
    return microseconds if 0 < microseconds < _LATEST_US else None


def _time_of_text(text: str) -> int | None:
    text = text.strip()[:60]
    moment: datetime | None = None
    try:
        if text.isdecimal() and len(text) < 20:
            return as_time_us(int(text))
        if found := _DATE_AT.match(text):
            year, month, day, hour, minute, second = map(int, found.groups())
            moment = datetime(year, month, day, hour, minute, second)
        elif (found := _MONTH_NAME.match(text)) and found[1][:3].lower() in _MONTHS:
            hour = int(found[4]) % 12 + 12 * (found[6].lower() == "pm") if found[6] else int(found[4])
            month = _MONTHS.index(found[1][:3].lower()) + 1
            moment = datetime(int(found[3]), month, int(found[2]), hour, int(found[5]))
        else:
            moment = datetime.fromisoformat(text)
        # Without a zone it is the time of the computer it was written on, most likely this one.
        since = (moment.astimezone() if moment.tzinfo is None else moment) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return _in_range(round(since.total_seconds() * 1_000_000))
