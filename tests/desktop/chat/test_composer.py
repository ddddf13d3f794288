"""Typing, sending and stopping, driven by real key and input method events."""

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QToolButton

from desktop.chat.composer import Composer


@pytest.fixture
def composer(qtbot) -> Composer:
    widget = Composer()
    qtbot.addWidget(widget)
    widget.resize(700, 200)
    widget.show()
    return widget


@pytest.fixture
def edit(composer: Composer) -> QPlainTextEdit:
    edit = composer.findChild(QPlainTextEdit)
    edit.setFocus()
    return edit


@pytest.fixture
def sent(composer: Composer) -> list[str]:
    messages: list[str] = []
    composer.submitted.connect(messages.append)
    return messages


def button(composer: Composer, name: str) -> QToolButton:
    return next(b for b in composer.findChildren(QToolButton) if b.accessibleName() == name)


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_enter_sends_and_leaves_the_text_in_place(qtbot, composer, edit, sent, key) -> None:
    qtbot.keyClicks(edit, "hello")
    qtbot.keyClick(edit, key)
    assert sent == ["hello"]
    assert composer.text() == "hello"


def test_shift_enter_begins_a_new_line(qtbot, composer, edit, sent) -> None:
    qtbot.keyClicks(edit, "a")
    qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(edit, "b")
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent == ["a\nb"]


@pytest.mark.parametrize("text", ["", "   ", "\n\t \u3000"])
def test_blank_text_is_not_sent(qtbot, composer, edit, sent, text) -> None:
    composer.set_text(text)
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent == []
    assert not button(composer, "Send").isEnabled()


def test_enter_that_accepts_an_input_method_candidate_does_not_send(qtbot, composer, edit, sent) -> None:
    QApplication.sendEvent(edit, QInputMethodEvent("むずかしい", []))
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent == []
    commit = QInputMethodEvent()
    commit.setCommitString("難しい")
    QApplication.sendEvent(edit, commit)
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent == ["難しい"]


def test_stop_is_offered_only_while_busy(qtbot, composer, edit) -> None:
    assert not button(composer, "Stop").isVisible()
    composer.set_busy(True)
    with qtbot.waitSignal(composer.stop_requested):
        button(composer, "Stop").click()
    with qtbot.waitSignal(composer.stop_requested):
        qtbot.keyClick(edit, Qt.Key.Key_Escape)
    composer.set_busy(False)
    with qtbot.assertNotEmitted(composer.stop_requested):
        qtbot.keyClick(edit, Qt.Key.Key_Escape)


def test_one_can_type_and_send_while_busy(qtbot, composer, edit, sent) -> None:
    composer.set_busy(True)
    qtbot.keyClicks(edit, "next")
    assert button(composer, "Send").isVisible()
    qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert sent == ["next"]


def test_it_grows_with_its_text_up_to_ten_lines(composer, edit) -> None:
    heights = []
    for lines in (1, 3, 10, 11, 200):
        composer.set_text("\n".join("x" * lines))
        heights.append(edit.height())
    assert heights[0] < heights[1] < heights[2]
    assert heights[2] == heights[3] == heights[4]


def test_what_was_cleared_comes_back_with_undo(qtbot, composer, edit) -> None:
    qtbot.keyClicks(edit, "precious")
    composer.clear()
    assert composer.text() == ""
    edit.undo()
    assert composer.text() == "precious"


def test_pasted_rich_text_becomes_plain_text(composer, edit) -> None:
    rich = QMimeData()
    rich.setHtml("<b>bold</b>")
    rich.setText("plain <b>")
    QGuiApplication.clipboard().setMimeData(rich)
    edit.paste()
    assert composer.text() == "plain <b>"


def test_a_pasted_megabyte_arrives_whole(composer, edit) -> None:
    text = "0123456789 words to wrap\n" * 40_000
    QGuiApplication.clipboard().setText(text)
    edit.paste()
    assert composer.text() == text


def test_a_pasted_picture_is_not_taken_for_text(composer, edit) -> None:
    picture = QMimeData()
    picture.setData("image/png", b"\x89PNG")
    QGuiApplication.clipboard().setMimeData(picture)
    edit.paste()
    assert composer.text() == ""


def test_every_change_is_told(composer) -> None:
    texts: list[str] = []
    composer.text_changed.connect(texts.append)
    composer.set_text("a")
    composer.clear()
    assert texts == ["a", ""]


def test_the_note_takes_no_room_when_empty(composer) -> None:
    composer.set_note("Your message waits for the model to load")
    with_note = composer.sizeHint().height()
    composer.set_note("")
    assert composer.sizeHint().height() < with_note


def test_the_fields_have_names_for_screen_readers(composer, edit) -> None:
    assert edit.accessibleName() == "Message"
    assert {b.accessibleName() for b in composer.findChildren(QToolButton)} == {"Send", "Stop", "Context"}


@pytest.mark.parametrize("long", ["word " * 60, "two\nlines"])
def test_text_of_more_than_a_line_has_the_whole_width_with_the_buttons_below(
    qtbot, composer, edit, long: str
) -> None:
    QApplication.processEvents()
    send = button(composer, "Send")
    beside = edit.width()
    assert send.geometry().left() >= edit.geometry().right()
    edit.insertPlainText(long)
    QApplication.processEvents()
    assert edit.width() > beside
    assert send.geometry().top() >= edit.geometry().bottom()
    # What goes back in takes no more than it took.
    composer.clear()
    QApplication.processEvents()
    assert edit.width() == beside
    assert send.geometry().left() >= edit.geometry().right()
