"""Finding text in the chat that is open: the bar, the count, and where one is brought."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from desktop.chat.find_bar import FindBar
from desktop.chat.transcript_message import ShownReasoning, TranscriptMessage
from desktop.chat.transcript_view import TranscriptView
from desktop.theme import load_theme


@pytest.fixture
def bar(qtbot: QtBot, view: TranscriptView) -> FindBar:
    bar = FindBar(view)
    qtbot.addWidget(bar)
    return bar


def assistant(key: int, text: str, reasoning: str = "") -> TranscriptMessage:
    shown = ShownReasoning(reasoning, "Thought for 1 s") if reasoning else None
    return TranscriptMessage(key, "assistant", text, reasoning=shown)


def chat(num_messages: int) -> list[TranscriptMessage]:
    return [assistant(key, f"Reply {key}\n\n{'some text ' * (key % 40)}") for key in range(num_messages)]


def look_for(qtbot: QtBot, bar: FindBar, text: str) -> None:
    if bar.isHidden():
        bar.open_bar()
    bar.field.selectAll()
    qtbot.keyClicks(bar.field, text)
    qtbot.waitUntil(lambda: not bar._pause.isActive() and not bar.chat_find.is_counting)


def place(view: TranscriptView) -> tuple[int, str]:
    """Message and text of the mark one was brought to, which must be on the screen."""
    assert view.shown_marks is not None
    mark = view.shown_marks.current
    assert mark is not None
    message = view._layout.message(mark.key)
    y = view._layout.top_of(view._layout.index_of(mark.key)) + message.y_of(mark)
    assert view._top <= y < view._top + view.viewport().height()
    rows = message._reasoning._rows if mark.part == "reasoning" else message.rows  # type: ignore[union-attr]
    assert rows is not None
    layout = rows.rows[mark.row].layout
    assert layout is not None
    return mark.key, layout.text_between(mark.start, mark.end)


def colours(view: TranscriptView, colour: str) -> int:
    """How many pixels of the picture have it."""
    image: QImage = view.viewport().grab().toImage()
    wanted = QColor(colour).rgb()
    return sum(image.pixel(x, y) == wanted for x in range(image.width()) for y in range(image.height()))


def test_matches_are_counted_and_gone_through_around_the_end(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages(
        [assistant(1, "An Apple and an *apple*"), assistant(2, "None"), assistant(3, "`APPLE` pie")]
    )
    look_for(qtbot, bar, "apple")
    seen = []
    for key, modifier in ((None, None), *[(Qt.Key.Key_Return, Qt.KeyboardModifier.NoModifier)] * 3):
        if key is not None and modifier is not None:
            qtbot.keyClick(bar.field, key, modifier)
        seen.append((bar.count.text(), place(view)))
    assert seen == [
        ("1 of 3", (1, "Apple")),
        ("2 of 3", (1, "apple")),
        ("3 of 3", (3, "APPLE")),
        ("1 of 3", (1, "Apple")),
    ]
    qtbot.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert (bar.count.text(), place(view)) == ("3 of 3", (3, "APPLE"))


@pytest.mark.parametrize(
    ("text", "typed", "marked"),
    [
        ("**bo**ld", "bold", "bold"),
        ("[a link](https://example.org/with/words) here", "link here", "link here"),
        ("a &amp; b", "a &amp; b", "a &amp; b"),
        ("naïve Café", "cafe", "Café"),
        ("😀 ash 😀 and ash", "ash", "ash"),
        ("| a | b |\n| - | - |\n| one | two |", "two", "two"),
        ("x\n\n```\nfirst\nif x != y:\n```", "!=", "!="),
        ("1. first\n2. second", "second", "second"),
        ("東京都の", "京都", "京都"),
    ],
)
def test_what_one_reads_is_found_whatever_is_written(
    qtbot: QtBot, view: TranscriptView, bar: FindBar, text: str, typed: str, marked: str
) -> None:
    view.set_messages([assistant(1, text)])
    bar.open_bar()
    bar.field.setText(typed)
    qtbot.waitUntil(lambda: bar.chat_find.number == 1)
    assert place(view) == (1, marked)


def test_addresses_and_markup_that_are_not_shown_are_not_found(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages([assistant(1, "[a link](https://example.org) and **bold**")])
    for typed in ("example", "**"):
        look_for(qtbot, bar, typed)
        assert bar.count.text() == "Not found"


def test_all_matches_are_marked_and_the_one_gone_to_differently(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages([assistant(1, "apple apple\n\n```\napple\n```\n\n| apple |\n| - |\n| apple |")])
    theme = load_theme("light")
    assert colours(view, theme.match) == 0
    look_for(qtbot, bar, "apple")
    assert colours(view, theme.match) > 4 * 100
    assert colours(view, theme.current_match) > 100
    qtbot.keyClick(bar.field, Qt.Key.Key_Escape)
    assert (colours(view, theme.match), colours(view, theme.current_match)) == (0, 0)
    assert bar.isHidden()


def test_reasoning_is_searched_and_unfolded_to_be_read(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages([assistant(1, "Yes.", reasoning="Let me think about *whales*")])
    look_for(qtbot, bar, "whales")
    assert place(view) == (1, "whales")
    assert view.shown_messages()[0].is_reasoning_unfolded


def test_a_match_far_to_the_side_of_a_code_block_is_scrolled_to(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages([assistant(1, f"```\n{'x ' * 400}needle\n```")])
    look_for(qtbot, bar, "needle")
    row = view.shown_messages()[0].rows.rows[0]
    assert row.layout is not None
    assert row.layout.scroll_x > 0


def test_a_chat_of_10_000_messages_is_searched_without_laying_it_out(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages(chat(10_000))
    look_for(qtbot, bar, "reply 77")
    # 77, 770 to 779, 7700 to 7799
    assert bar.count.text() == "1 of 111"
    assert place(view) == (77, "Reply 77")
    qtbot.keyClick(bar.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert (bar.count.text(), place(view)) == ("111 of 111", (7799, "Reply 77"))
    assert view.laid_out_blocks < 300
    assert view.read_messages < 300


def test_the_search_begins_at_what_is_on_the_screen(qtbot: QtBot, view: TranscriptView, bar: FindBar) -> None:
    view.set_messages(chat(500))
    look_for(qtbot, bar, "reply 1")
    # The chat is shown at its end, from which the next one is around the corner.
    assert place(view)[0] == 1
    view.go_to_message(150)
    bar.close_bar()
    look_for(qtbot, bar, "reply 1")
    assert place(view)[0] in range(140, 151)


def test_a_reply_that_streams_is_looked_through_as_it_grows(
    qtbot: QtBot, view: TranscriptView, bar: FindBar
) -> None:
    view.set_messages([assistant(1, "apple"), TranscriptMessage(2, "assistant", "", "writing")])
    look_for(qtbot, bar, "apple")
    assert bar.count.text() == "1 of 1"
    view.append_text(2, "another apple")
    qtbot.waitUntil(lambda: bar.count.text() == "1 of 2")
    view.set_messages([assistant(7, "no more")])
    qtbot.waitUntil(lambda: bar.count.text() == "Not found")


def test_selected_text_is_what_is_looked_for(qtbot: QtBot, view: TranscriptView, bar: FindBar) -> None:
    view.set_messages([assistant(1, "pear"), assistant(2, "pear")])
    view.select_all()
    bar.open_bar()
    assert bar.field.text() == ""
    view.set_messages([assistant(1, "pear")])
    view.select_all()
    bar.open_bar()
    qtbot.waitUntil(lambda: bar.count.text() == "1 of 1")
