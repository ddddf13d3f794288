"""Numbers as people read them: bytes, token counts, seconds, rates."""

from __future__ import annotations

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def format_bytes(num_bytes: int) -> str:
    """Decimal units as disks are sold in: 93 MB, 1.3 GB."""
    return _in_unit(num_bytes, _unit_index(num_bytes))


def format_share_of_bytes(num_bytes: int, total_bytes: int) -> str:
    """Both in one unit where they are near each other: "12 of 184 MB", else "93 MB of 20 GB"."""
    part, whole = _unit_index(num_bytes), _unit_index(total_bytes)
    if num_bytes == 0 or part == whole:
        return f"{_number(num_bytes, whole)} of {format_bytes(total_bytes)}"
    return f"{format_bytes(num_bytes)} of {format_bytes(total_bytes)}"


def format_count(count: int) -> str:
    """4012 -> 4,012."""
    return f"{count:,}"


def format_seconds(seconds: float) -> str:
    """Two digits that matter: 0.03 s, 1.2 s, 84 s; minutes from 100 s on."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min"


def format_rate(tokens_per_second: float) -> str:
    """41.2 tok/s; no decimals from 100 on."""
    digits = 0 if tokens_per_second >= 99.95 else 1
    return f"{tokens_per_second:,.{digits}f} tok/s"


def format_percent(fraction: float) -> str:
    """Rounded down, so that 100 % means all of it."""
    return f"{int(min(max(fraction, 0.0), 1.0) * 100)} %"


def _unit_index(num_bytes: int) -> int:
    index = 0
    # 999.5 kB is shown as 1 MB, not as 1000 kB.
    while index < len(_BYTE_UNITS) - 1 and num_bytes >= 999.5 * 1000**index:
        index += 1
    return index


def _number(num_bytes: int, unit: int) -> str:
    value = num_bytes / 1000**unit
    # Whole numbers up to megabytes, one decimal below ten from gigabytes on: 93 MB, 1.3 GB, 20 GB.
    if unit >= 3 and value < 9.95 and round(value, 1) != round(value):
        return f"{value:.1f}"
    return f"{value:.0f}"


def _in_unit(num_bytes: int, unit: int) -> str:
    return f"{_number(num_bytes, unit)} {_BYTE_UNITS[unit]}"
