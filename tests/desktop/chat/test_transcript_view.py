"""The transcript as one reads it: what is literal, what can be clicked, what is laid out."""

import socket

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication

from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_view import TranscriptView
from desktop.theme import apply_theme, load_theme


def user(key: int, text: str) -> TranscriptMessage:
    return TranscriptMessage(key, "user", text)


def assistant(key: int, text: str, **more) -> TranscriptMessage:
    return TranscriptMessage(key, "assistant", text, **more)


def long_chat(messages: int) -> list[TranscriptMessage]:
    return [
        assistant(i, f"# Reply {i}\n\nSome text.\n\n- a\n- b\n\n```py\nx = {i}\n```")
        if i % 2
        else user(i, f"Question {i}? " * (1 + i % 7))
        for i in range(messages)
    ]


def spots(view: TranscriptView, kind: str) -> list[tuple[QPoint, str]]:
    """Where the visible buttons of a kind are, and what they say."""
    return [(s.rect.center().toPoint(), s.label) for _, s in view.visible_spots() if s.kind == kind]


def find_link(view: TranscriptView, url: str) -> QPoint:
    for y in range(0, view.viewport().height(), 4):
        for x in range(0, view.viewport().width(), 4):
            if view.url_at(QPointF(x, y)) == url:
                return QPoint(x, y)
    raise AssertionError(f"no link to {url} is on screen")


def drag(qtbot, view: TranscriptView, start: QPoint, end: QPoint) -> None:
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=start)
    for point in (start + (end - start) / 2, end):
        QApplication.sendEvent(view.viewport(), mouse_move(view, point))
    qtbot.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=end)


def mouse_move(view: TranscriptView, point: QPoint) -> QMouseEvent:
    """A move with the left button held."""
    return QMouseEvent(
        QEvent.Type.MouseMove,
        QPointF(point),
        QPointF(view.viewport().mapToGlobal(point)),
        Qt.MouseButton.NoButton,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )


LITERAL = [
    "<img src=x onerror=alert(1)>",
    "<b>hi</b>",
    "a<b && c>d",
    "vector<int>",
    "&lt;",
    "[x](file:///etc/passwd)",
    "[x](javascript:alert(1))",
]


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("text", LITERAL)
def test_markup_is_literal_on_screen_and_when_copied(view: TranscriptView, role, text: str) -> None:
    view.set_messages([TranscriptMessage(1, role, text)])
    assert view.message_text_on_screen(1) == text
    view.select_all()
    view.copy_selection()
    assert QGuiApplication.clipboard().text() == text


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_image_is_shown_as_written_and_never_fetched(qtbot, view: TranscriptView, role) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        port = server.getsockname()[1]
        text = f"![](http://127.0.0.1:{port}/p.png) <img src='http://127.0.0.1:{port}/q.png'>"
        view.set_messages([TranscriptMessage(1, role, text)])
        view.grab()
        assert view.message_text_on_screen(1) == text
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    "text", ["[x](file:///etc/passwd)", "[x](javascript:alert(1))", "![](http://a/p.png)"]
)
def test_no_point_of_an_unsafe_link_can_be_clicked(view: TranscriptView, text: str) -> None:
    view.set_messages([assistant(1, text)])
    points = [QPointF(x, y) for x in range(0, 800, 5) for y in range(0, 120, 5)]
    assert {view.url_at(point) for point in points} == {""}


def test_a_link_shows_its_address_and_is_followed_by_a_click(qtbot, view: TranscriptView) -> None:
    view.set_messages([assistant(1, "see [the docs](https://example.org/a?b=1) now")])
    point = find_link(view, "https://example.org/a?b=1")
    hovered: list[str] = []
    view.link_hovered.connect(hovered.append)
    qtbot.mouseMove(view.viewport(), point)
    qtbot.mouseMove(view.viewport(), QPoint(5, 500))
    assert hovered == ["https://example.org/a?b=1", ""]
    with qtbot.waitSignal(view.link_activated) as activated:
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert activated.args == [QUrl("https://example.org/a?b=1")]


def test_ten_thousand_messages_lay_out_only_what_is_near_the_viewport(view: TranscriptView) -> None:
    view.set_messages(long_chat(10_000))
    bar = view.verticalScrollBar()
    opened = view.read_messages
    assert 0 < opened < 60
    for place in (0, 0.25, 0.5, 0.9, 1):
        bar.setValue(round(place * bar.maximum()))
        view.grab()
        assert 0 < view.laid_out_blocks < 300
    assert view.read_messages < 400


def test_text_does_not_jump_while_one_scrolls_up_through_unseen_messages(view: TranscriptView) -> None:
    view.set_messages(long_chat(300))
    bar = view.verticalScrollBar()
    for _ in range(200):
        before = view.position_at(QPointF(400, 100))
        bar.setValue(bar.value() - 40)
        assert view.position_at(QPointF(400, 140)) == before


def test_text_at_the_top_stays_when_a_message_above_grows(view: TranscriptView) -> None:
    view.set_messages(long_chat(60))
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    before = view.position_at(QPointF(400, 100))
    view.update_message(assistant(1, "Now much longer.\n\n" * 40, caption="and with a caption"))
    assert view.position_at(QPointF(400, 100)) == before


def test_text_at_the_top_stays_when_a_message_above_is_removed(view: TranscriptView) -> None:
    view.set_messages(long_chat(60))
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    before = view.position_at(QPointF(400, 100))
    view.remove_message(3)
    after = view.position_at(QPointF(400, 100))
    assert after is not None
    assert before is not None
    assert (after.message, after.place) == (before.message - 1, before.place)


def test_the_text_column_is_limited_and_centred(view: TranscriptView) -> None:
    view.resize(1600, 600)
    style = view.style_in_use
    assert 70 <= style.characters_per_line <= 80
    assert style.text_font.pixelSize() == 15


def test_a_narrow_window_uses_what_there_is(view: TranscriptView) -> None:
    view.resize(300, 500)
    view.set_messages(long_chat(4))
    assert view.style_in_use.column_width < 300


def test_selecting_with_the_mouse_goes_across_blocks_and_messages(qtbot, view: TranscriptView) -> None:
    view.set_messages([assistant(1, "first\n\nsecond"), user(2, "third"), assistant(3, "- fourth\n- fifth")])
    drag(qtbot, view, QPoint(1, 1), QPoint(798, 590))
    assert view.selected_text() == "first\n\nsecond\n\nthird\n\n• fourth\n• fifth"


def test_a_partial_selection_has_exactly_its_characters(qtbot, view: TranscriptView) -> None:
    view.set_messages([assistant(1, "abc 🔥 def"), assistant(2, "ghi")])
    qtbot.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=_point_in(view, 0, 1))
    assert view.selected_text() == "abc"


def _point_in(view: TranscriptView, message: int, offset: int) -> QPoint:
    """A point at which a position of the first block lies."""
    for y in range(0, 600, 3):
        for x in range(0, 800, 2):
            position = view.position_at(QPointF(x, y))
            if position is not None and (position.message, position.place.offset) == (message, offset):
                return QPoint(x, y)
    raise AssertionError("not on screen")


def test_three_clicks_select_the_paragraph(qtbot, view: TranscriptView) -> None:
    view.set_messages([assistant(1, "one two\n\nthree")])
    point = _point_in(view, 0, 2)
    qtbot.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert view.selected_text() == "one two"


def test_select_all_and_copy_by_keys_copies_the_plain_text(qtbot, view: TranscriptView) -> None:
    view.set_messages([user(1, "a **b**"), assistant(2, "c **d**\n\n| x | y |\n|---|---|\n| 1 | 2 |")])
    qtbot.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "a **b**\n\nc d\n\nx\ty\n1\t2"
    assert view.plain_text() == QGuiApplication.clipboard().text()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_the_copy_button_copies_the_exact_code(qtbot, view: TranscriptView, role) -> None:
    view.set_messages([TranscriptMessage(1, role, "```c\nif (a < b)\t \n\t&lt;  \n\n```")])
    [(point, label)] = spots(view, "copy")
    assert label == "Copy"
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert QGuiApplication.clipboard().text() == "if (a < b)\t \n\t&lt;  \n"


def test_actions_are_buttons_under_the_message(qtbot, view: TranscriptView) -> None:
    view.set_messages(
        [assistant(7, "x", error="It stopped. The text is kept.", actions=(("retry", "Try again"),))]
    )
    [(point, label)] = spots(view, "action")
    assert label == "Try again"
    with qtbot.waitSignal(view.action_triggered) as triggered:
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert triggered.args == [7, "retry"]


def test_buttons_can_be_reached_and_pressed_by_keys(qtbot, view: TranscriptView) -> None:
    view.set_messages([assistant(7, "```\ncode\n```", actions=(("retry", "Try again"),))])
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    qtbot.keyClick(view, Qt.Key.Key_Tab)
    with qtbot.waitSignal(view.action_triggered) as triggered:
        qtbot.keyClick(view, Qt.Key.Key_Return)
    assert triggered.args == [7, "retry"]


def test_an_empty_chat_offers_things_to_try(qtbot, view: TranscriptView) -> None:
    view.set_messages([])
    view.set_empty_hint("What shall we talk about?", ["one", "two", "three"])
    view.grab()
    offered = spots(view, "suggestion")
    assert [label for _, label in offered] == ["one", "two", "three"]
    with qtbot.waitSignal(view.suggestion_chosen) as chosen:
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=offered[1][0])
    assert chosen.args == ["two"]
    view.append_message(user(1, "two"))
    assert spots(view, "suggestion") == []


def test_keys_scroll_by_pages_and_to_both_ends(qtbot, view: TranscriptView) -> None:
    view.set_messages(long_chat(100))
    bar = view.verticalScrollBar()
    qtbot.keyClick(view, Qt.Key.Key_Home)
    assert bar.value() == 0
    qtbot.keyClick(view, Qt.Key.Key_PageDown)
    page = bar.value()
    assert 0.5 * view.viewport().height() < page <= view.viewport().height()
    qtbot.keyClick(view, Qt.Key.Key_PageUp)
    assert bar.value() == 0
    qtbot.keyClick(view, Qt.Key.Key_End)
    assert bar.value() == bar.maximum() > page


def test_control_plus_and_minus_change_the_font_size(qtbot, view: TranscriptView) -> None:
    control = Qt.KeyboardModifier.ControlModifier
    view.set_messages(long_chat(10))
    qtbot.keyClick(view, Qt.Key.Key_Plus, control)
    qtbot.keyClick(view, Qt.Key.Key_Plus, control)
    assert view.font_scale() == 1.2
    assert view.style_in_use.text_font.pixelSize() == 18
    qtbot.keyClick(view, Qt.Key.Key_Minus, control)
    assert view.font_scale() == 1.1
    qtbot.keyClick(view, Qt.Key.Key_0, control)
    assert view.font_scale() == 1.0


def test_wide_code_scrolls_sideways_with_shift_and_wheel(view: TranscriptView) -> None:
    view.set_messages([assistant(1, "```\n" + "x" * 500 + "\n```")])
    [(button, _)] = spots(view, "copy")
    point = QPointF(400, button.y() + 25)
    before = view.position_at(point)
    wheel = QWheelEvent(
        point,
        QPointF(view.viewport().mapToGlobal(point)),
        QPoint(),
        QPoint(0, -240),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.ShiftModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(view.viewport(), wheel)
    after = view.position_at(point)
    assert before is not None
    assert after is not None
    assert after.place.offset > before.place.offset


def test_right_to_left_paragraphs_begin_at_the_right(view: TranscriptView) -> None:
    view.set_messages([assistant(1, "- مرحبا بالعالم")])
    right, left = view.position_at(QPointF(780, 40)), view.position_at(QPointF(20, 40))
    assert right is not None
    assert left is not None
    assert right.place.offset < left.place.offset


def test_a_new_theme_is_taken_on_at_once(qapp, view: TranscriptView) -> None:
    view.set_messages(long_chat(3))
    try:
        for name in ("dark", "light"):
            apply_theme(qapp, name)
            corner = view.grab().toImage().pixelColor(3, 3)
            assert corner.name() == load_theme(name).page
    finally:
        apply_theme(qapp, "light")


def test_two_messages_with_one_key_are_refused(view: TranscriptView) -> None:
    view.set_messages([user(1, "a")])
    with pytest.raises(ValueError, match="shown already"):
        view.append_message(user(1, "b"))


def test_a_removed_message_is_gone_from_the_text(view: TranscriptView) -> None:
    view.set_messages([user(1, "a"), assistant(2, "b"), user(3, "c")])
    view.remove_message(2)
    view.update_message(user(3, "d"))
    assert view.plain_text() == "a\n\nd"


def test_screen_readers_find_a_name_and_a_description(view: TranscriptView) -> None:
    assert view.accessibleName()
    assert view.accessibleDescription()
