"""Where Tab leads from the message box, in the whole window."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply


async def test_tab_goes_from_the_message_box_to_the_newest_reply_and_on_around(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        everwarm, seen = window.everwarm, list[QWidget | None]()
        count = everwarm.panel.composer.context_count
        await until(lambda: not count.isHidden())
        for _ in range(9):
            QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
            seen.append(QApplication.focusWidget())
        transcript = everwarm.panel.transcript
        settings = everwarm.panel.settings_button
        new_chat = everwarm.window.findChild(QWidget, "new_chat_button")
        assert seen == [
            transcript,
            transcript,
            everwarm.picker,
            settings,
            everwarm.list_panel.search_field,
            new_chat,
            everwarm.list_view,
            count,
            window.input,
        ]


async def test_enter_on_the_caption_shows_the_receipt(window: RunningWindow) -> None:
    async with window:
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        for key in (Qt.Key.Key_Tab, Qt.Key.Key_Tab, Qt.Key.Key_Return):
            QTest.keyClick(QApplication.focusWidget(), key)
        assert window.everwarm.panel.transcript.shown_messages()[-1].is_unfolded
