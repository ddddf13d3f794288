"""What a model thought, above its answer: seen while there is no answer, folded away after."""

from __future__ import annotations

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from desktop.chat.transcript_message import ShownReasoning, TranscriptMessage
from desktop.chat.transcript_view import TranscriptView

WORDS = "Thought for 3.2 s · 40 tokens"


def thinking(text: str) -> ShownReasoning:
    return ShownReasoning(text, "Thinking · 1.0 s · 12 tokens")


def thought(answer: str = "Paris.", reasoning: str = "It is **Paris**.\n\nOr is it?") -> TranscriptMessage:
    return TranscriptMessage(1, "assistant", answer, reasoning=ShownReasoning(reasoning, WORDS))


def is_unfolded(view: TranscriptView) -> bool:
    [spot] = [spot for _, spot in view.visible_spots() if spot.kind == "reasoning"]
    return spot.label == "Hide the reasoning"


def click_line(qtbot: QtBot, view: TranscriptView) -> None:
    [spot] = [spot for _, spot in view.visible_spots() if spot.kind == "reasoning"]
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=spot.rect.center().toPoint())


def height(view: TranscriptView) -> float:
    return view.shown_messages()[0].height


def test_the_line_unfolds_the_reasoning_and_folds_it_away(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([thought()])
    folded = height(view)
    click_line(qtbot, view)
    assert is_unfolded(view)
    assert height(view) > folded + 40
    click_line(qtbot, view)
    assert height(view) == folded


def test_return_on_the_line_unfolds_it_and_keeps_the_focus(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([thought()])
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert is_unfolded(view)
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert not is_unfolded(view)


def test_copying_leaves_the_reasoning_out(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([thought()])
    click_line(qtbot, view)
    view.select_all()
    assert view.selected_text() == "Paris."
    assert view.plain_text() == "Paris."


def test_a_position_in_the_answer_is_found_below_the_reasoning(qtbot: QtBot, view: TranscriptView) -> None:
    """A double click selects the word under the mouse, unfolded or not."""
    view.set_messages([thought("Paris")])
    for _ in range(2):
        message = view.shown_messages()[0]
        y = view._layout.top_of(0) + message.rows_origin.y() + 8
        point = view.viewport().rect().topLeft()
        point.setX(int(view._column_left()) + 8)
        point.setY(int(y))
        qtbot.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
        assert view.selected_text() == "Paris"
        click_line(qtbot, view)


def test_it_is_seen_while_it_is_written_and_folds_when_the_answer_begins(view: TranscriptView) -> None:
    view.set_messages([TranscriptMessage(1, "assistant", "", "writing")])
    view.append_text(1, "", thinking("First,"))
    view.append_text(1, "", thinking("First, I think"))
    view.flush()
    assert is_unfolded(view)
    before = height(view)
    view.append_text(1, "", thinking("First, I think.\n\nThen I think again."))
    view.flush()
    assert height(view) > before
    view.append_text(1, "Paris.", thinking("First, I think.\n\nThen I think again."))
    view.flush()
    assert not is_unfolded(view)


def test_it_does_not_fold_away_under_the_eyes_of_who_reads_it(view: TranscriptView) -> None:
    long_text = "\n\n".join(f"Thought number {number}." for number in range(80))
    view.set_messages([TranscriptMessage(1, "assistant", "", "writing")])
    view.append_text(1, "", thinking(long_text))
    view.flush()
    view.verticalScrollBar().setValue(0)
    view.append_text(1, "Paris.", thinking(long_text))
    view.flush()
    assert is_unfolded(view)
    assert view.verticalScrollBar().value() == 0


def test_reasoning_that_never_led_to_an_answer_is_not_hidden(view: TranscriptView) -> None:
    view.set_messages([thought(answer="")])
    assert is_unfolded(view)


def test_a_folded_line_far_above_is_no_reason_to_parse_its_text(view: TranscriptView) -> None:
    view.set_messages([thought(reasoning="x\n\n" * 50_000)])
    assert not is_unfolded(view)
    assert view.laid_out_blocks == 1
