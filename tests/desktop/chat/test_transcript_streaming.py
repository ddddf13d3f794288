"""A reply streams into the transcript: what is shown, where the view stays and what it costs."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QToolButton

from desktop.chat.transcript_message import TranscriptMessage
from desktop.chat.transcript_view import TranscriptView

REPLY = """# Title

Some **bold** text with a [link](https://example.org) and `code`.

1. one
2. two
   ```python
   def f(x):\t
       return x  
   ```
3. three

| a | b |
|---|--:|
| 1 | 2 🔥 |

> quoted
> more

````md
```py
x
```
````

See [docs].

[docs]: https://example.org/docs
"""  # noqa: W291


def writing(key: int = 2, text: str = "") -> TranscriptMessage:
    return TranscriptMessage(key, "assistant", text, "writing")


def chat(messages: int) -> list[TranscriptMessage]:
    return [
        TranscriptMessage(
            i, "assistant" if i % 2 else "user", f"Message {i}\n\nwith some text. " * (1 + i % 4)
        )
        for i in range(messages)
    ]


def newest_button(view: TranscriptView) -> QToolButton:
    return view.findChild(QToolButton)


def at_end(view: TranscriptView) -> bool:
    bar = view.verticalScrollBar()
    return bar.value() == bar.maximum()


def shown_at_once(view: TranscriptView, text: str) -> str:
    view.set_messages([TranscriptMessage(2, "assistant", text)])
    return view.message_text_on_screen(2)


def test_a_streamed_reply_shows_what_the_whole_text_shows(view: TranscriptView) -> None:
    view.set_messages([writing()])
    for character in REPLY:
        view.append_text(2, character)
        view.flush()
    streamed = view.message_text_on_screen(2)
    view.update_message(TranscriptMessage(2, "assistant", REPLY, caption="reused 4 · read 1"))
    assert view.message_text_on_screen(2) == streamed == shown_at_once(view, REPLY)
    assert "3. three" in streamed
    assert "1\t2 🔥" in streamed
    assert "def f(x):\t\n    return x  " in streamed


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10_000))
def test_shuffled_lines_in_pieces_of_any_size_show_the_same(view: TranscriptView, seed: int) -> None:
    rng = random.Random(seed)
    lines = REPLY.splitlines(keepends=True)
    rng.shuffle(lines)
    text = "".join(lines)
    view.set_messages([writing()])
    rest = text
    while rest:
        size = rng.randint(1, 12)
        view.append_text(2, rest[:size])
        rest = rest[size:]
        if rng.random() < 0.5:
            view.flush()
    assert view.message_text_on_screen(2) == shown_at_once(view, text)


def test_heights_after_streaming_are_those_of_the_whole(view: TranscriptView) -> None:
    view.set_messages([writing()])
    for start in range(0, len(REPLY), 5):
        view.append_text(2, REPLY[start : start + 5])
        view.flush()
    streamed = view.verticalScrollBar().maximum()
    shown_at_once(view, REPLY)
    assert view.verticalScrollBar().maximum() == streamed


def test_many_pieces_are_shown_with_one_paint(qtbot, view: TranscriptView) -> None:
    view.set_messages([writing()])
    view.append_text(2, "first ")
    qtbot.waitUntil(lambda: view.flush_count == 1)
    flushes = view.flush_count
    for _ in range(1000):
        view.append_text(2, "word ")
    assert view.flush_count == flushes
    qtbot.waitUntil(lambda: view.flush_count > flushes)
    assert view.flush_count == flushes + 1
    assert view.message_text_on_screen(2).count("word") == 1000


def test_the_view_stays_at_the_end_while_a_reply_streams(view: TranscriptView) -> None:
    view.set_messages([*chat(20), writing(100)])
    for _ in range(30):
        view.append_text(100, "a line of the reply\n\n")
        view.flush()
        assert at_end(view)
    assert not newest_button(view).isVisible()


def test_a_reader_who_scrolled_up_is_left_where_they_are(view: TranscriptView) -> None:
    view.set_messages([*chat(40), writing(100)])
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() - 500)
    place = bar.value()
    for _ in range(30):
        view.append_text(100, "a line of the reply\n\n")
        view.flush()
    assert bar.value() == place
    assert newest_button(view).isVisible()
    newest_button(view).click()
    assert at_end(view)
    assert not newest_button(view).isVisible()
    view.append_text(100, "more\n\nand more\n\n")
    view.flush()
    assert at_end(view)


def test_sending_a_message_goes_to_the_end(view: TranscriptView) -> None:
    view.set_messages(chat(40))
    view.verticalScrollBar().setValue(0)
    view.append_message(TranscriptMessage(100, "assistant", "a note"))
    assert not at_end(view)
    view.append_message(TranscriptMessage(101, "user", "hello"))
    assert at_end(view)


def test_streaming_twenty_thousand_tokens_costs_linear_parsing_and_bounded_layout(
    view: TranscriptView,
) -> None:
    part = (
        "## Head\n\nSome **words** of text. " * 4
        + "\n\n```py\nx = 1\n```\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    )
    text = part * (80_000 // len(part))
    view.set_messages([writing()])
    laid_out = []
    for start in range(0, len(text), 280):
        view.append_text(2, text[start : start + 280])
        view.flush()
        laid_out.append(view.laid_out_blocks)
    assert view.parsed_characters(2) <= 6 * len(text)
    assert max(laid_out) < 250


def test_no_timer_runs_when_nothing_happens(qtbot, view: TranscriptView) -> None:
    view.set_messages([writing()])
    view.append_text(2, REPLY)
    view.flush()
    qtbot.waitUntil(lambda: not any(timer.isActive() for timer in view.findChildren(QTimer)))


def test_updating_a_caption_does_not_read_the_text_again(view: TranscriptView) -> None:
    view.set_messages([TranscriptMessage(2, "assistant", REPLY)])
    parsed = view.parsed_characters(2)
    for percent in range(100):
        view.update_message(TranscriptMessage(2, "assistant", REPLY, "reading", caption=f"{percent} %"))
    assert view.parsed_characters(2) == parsed


def test_text_that_is_replaced_is_read_anew(view: TranscriptView) -> None:
    view.set_messages([TranscriptMessage(2, "assistant", "# old\n\ntext")])
    view.update_message(TranscriptMessage(2, "assistant", "new *text*"))
    assert view.message_text_on_screen(2) == "new text"


def test_text_not_yet_painted_is_not_lost_when_a_message_is_updated(view: TranscriptView) -> None:
    view.set_messages([writing()])
    view.append_text(2, "one ")
    view.append_text(2, "two")
    view.update_message(TranscriptMessage(2, "assistant", "one two", "done"))
    view.flush()
    assert view.plain_text() == "one two"
