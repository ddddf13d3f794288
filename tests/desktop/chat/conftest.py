"""A transcript on a screen of its own."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from desktop.chat.transcript_view import TranscriptView


@pytest.fixture
def view(qtbot: QtBot) -> TranscriptView:
    widget = TranscriptView()
    qtbot.addWidget(widget)
    widget.resize(800, 600)
    widget.show()
    return widget
