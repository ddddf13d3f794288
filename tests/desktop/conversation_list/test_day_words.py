"""Moments as the list tells them."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from desktop.conversation_list.day_words import day_group, short_moment

TODAY = date(2026, 3, 9)


def at(day: date) -> datetime:
    """Noon of that day, where the reader is."""
    return datetime(day.year, day.month, day.day, 12, 5).astimezone()


@pytest.mark.parametrize(
    ("days_ago", "group"),
    [
        (-1, "Today"),
        (0, "Today"),
        (1, "Yesterday"),
        (2, "Previous 7 days"),
        (7, "Previous 7 days"),
        (8, "Previous 30 days"),
        (30, "Previous 30 days"),
        (31, "February"),
        (60, "January"),
        (90, "December 2025"),
    ],
)
def test_a_chat_stands_under_its_day_its_month_or_its_year(days_ago: int, group: str) -> None:
    assert day_group(at(TODAY - timedelta(days=days_ago)), TODAY) == group


def test_a_moment_is_as_short_as_it_can_be() -> None:
    days = (TODAY, TODAY - timedelta(days=1), TODAY - timedelta(days=90))
    assert [short_moment(at(day), TODAY) for day in days] == ["12:05", "8 Mar", "9 Dec 2025"]
