"""What a caption unfolds in the transcript."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from desktop.chat.transcript_message import Detail, TranscriptMessage
from desktop.chat.transcript_view import TranscriptView
from desktop.theme import load_theme

DETAILS = (
    Detail("Reused", "4,012 tokens in memory", "reused"),
    Detail("Restored", "0 tokens from disk", "restored"),
    Detail("Read (prefill)", "31 tokens", "prefilled"),
    Detail("Why", "the store goes on with “ cat” where this chat says “ dog”. " * 3),
)


def answered(key: int, text: str = "Sure.") -> TranscriptMessage:
    return TranscriptMessage(key, "assistant", text, caption="reused 4,012 · read 31", details=DETAILS)


def captions(view: TranscriptView) -> list[tuple[int, QPoint, str]]:
    """Key, place and label of each caption that unfolds something."""
    spots = view.visible_spots()
    return [(key, s.rect.center().toPoint(), s.label) for key, s in spots if s.kind == "details"]


def click_caption(qtbot: QtBot, view: TranscriptView, number: int = 0) -> None:
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=captions(view)[number][1])


def heights(view: TranscriptView) -> list[float]:
    return [message.height for message in view.shown_messages()]


def test_a_click_on_the_caption_unfolds_the_details_and_another_folds_them(
    qtbot: QtBot, view: TranscriptView
) -> None:
    view.set_messages([answered(1)])
    folded = heights(view)
    click_caption(qtbot, view)
    assert heights(view)[0] > folded[0] + 80
    assert captions(view)[0][2] == "Hide the receipt"
    click_caption(qtbot, view)
    assert heights(view) == folded


def test_enter_unfolds_and_folds_while_the_caption_has_the_focus(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([answered(1), answered(2)])
    folded = heights(view)
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert heights(view)[0] == folded[0]
    assert heights(view)[1] > folded[1]
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert heights(view) == folded


def test_a_caption_without_details_is_no_button(view: TranscriptView) -> None:
    view.set_messages([replace(answered(1), details=())])
    assert captions(view) == []


def test_each_origin_has_its_colour_in_the_details(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([answered(1)])
    click_caption(qtbot, view)
    image = view.grab().toImage()
    seen = {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}
    theme = load_theme("light")
    assert {theme.reused, theme.restored, theme.prefilled} <= seen


def test_the_last_messages_details_come_into_view(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([answered(key, "A line.\n\n" * 30) for key in range(4)])
    click_caption(qtbot, view, -1)
    bar = view.verticalScrollBar()
    assert bar.value() == bar.maximum()


def test_what_one_reads_stays_in_place_when_an_earlier_message_unfolds(
    qtbot: QtBot, view: TranscriptView
) -> None:
    view.set_messages([answered(key) for key in range(40)])
    first, place, _ = captions(view)[0]
    click_caption(qtbot, view)
    assert captions(view)[0][:2] == (first, place)


def test_details_stay_unfolded_when_text_size_and_message_change(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([answered(1)])
    click_caption(qtbot, view)
    view.set_font_scale(1.5)
    view.update_message(answered(1, "Sure. More."))
    assert captions(view)[0][2] == "Hide the receipt"
    assert view.shown_messages()[0].is_unfolded


def test_the_text_above_unfolded_details_is_still_found(qtbot: QtBot, view: TranscriptView) -> None:
    view.set_messages([answered(1), answered(2)])
    click_caption(qtbot, view, 0)
    second = captions(view)[1][1]
    position = view.position_at(QPointF(second.x(), second.y()))
    assert position is not None
    assert position.message == 1


def test_buttons_that_do_not_stand_side_by_side_take_another_line(view: TranscriptView) -> None:
    view.resize(420, 600)
    actions = tuple((f"a{number}", f"Leave out the oldest turns ({number} messages)") for number in range(3))
    view.set_messages([TranscriptMessage(1, "assistant", "Hi", "failed", error="No.", actions=actions)])
    spots = [spot for _, spot in view.visible_spots() if spot.kind == "action"]
    assert [spot.value for spot in spots] == ["a0", "a1", "a2"]
    right = view.style_in_use.column_width + min(spot.rect.left() for spot in spots)
    assert all(spot.rect.right() <= right for spot in spots)
    assert len({spot.rect.top() for spot in spots}) == 3
    last = view.shown_messages()[-1]
    assert last.height >= spots[-1].rect.bottom() - spots[0].rect.top()


def test_the_mark_stands_above_the_bubble_and_moves_nothing_else(view: TranscriptView) -> None:
    plain = TranscriptMessage(1, "user", "Hello")
    view.set_messages([plain, TranscriptMessage(2, "assistant", "Hi", caption="read 3")])
    before = [message.height for message in view.shown_messages()]
    origin = view.shown_messages()[0].rows_origin
    marked = replace(plain, mark="The model no longer sees the 12 messages above", standing="Pinned")
    view.update_message(marked)
    bubble, answer = view.shown_messages()
    assert bubble.rows_origin.y() > origin.y()
    assert bubble.rows_origin.x() == origin.x()
    assert bubble.height > before[0] + bubble.rows_origin.y() - origin.y()
    assert answer.height == before[1]
    view.update_message(plain)
    assert [message.height for message in view.shown_messages()] == before


def test_the_context_menu_offers_what_the_message_has(view: TranscriptView) -> None:
    def choose() -> None:
        menu = view.findChild(QMenu)
        next(action for action in menu.actions() if action.text() == "Pin for the model").trigger()
        menu.close()

    view.set_messages([TranscriptMessage(7, "user", "Hello", menu=(("pin_message", "Pin for the model"),))])
    done: list[tuple[int, str]] = []
    view.action_triggered.connect(lambda key, action: done.append((key, action)))
    where = QPoint(400, 40)
    QTimer.singleShot(0, choose)
    view.contextMenuEvent(QContextMenuEvent(QContextMenuEvent.Reason.Mouse, where, where))
    assert done == [(7, "pin_message")]
