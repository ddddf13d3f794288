"""Moments as the list of chats tells them: by day, the nearer the more exactly."""

from __future__ import annotations

from datetime import date, datetime, timedelta

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def day_group(when: datetime, today: date) -> str:
    """The heading under which a chat of that moment stands. `when` is aware of its time zone, `today` the reader's."""
    day = when.astimezone().date()
    # A clock that was set back makes chats of tomorrow.
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day >= today - timedelta(days=7):
        return "Previous 7 days"
    if day >= today - timedelta(days=30):
        return "Previous 30 days"
    if day.year == today.year:
        return MONTHS[day.month - 1]
    return f"{MONTHS[day.month - 1]} {day.year}"


def short_moment(when: datetime, today: date) -> str:
    """As short as can be told apart: a time today, a day this year, a day of a year."""
    local = when.astimezone()
    day = local.date()
    if day == today:
        return f"{local:%H:%M}"
    month = MONTHS[day.month - 1][:3]
    return f"{day.day} {month}" if day.year == today.year else f"{day.day} {month} {day.year}"
