"""The window with a real worker, and files chosen as models that are none."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt

from desktop.starter_model import find_starter_model
from tests.desktop.real_engine_window import RealEngineWindow
from tests.desktop.running_window import until
from tests.handmade_gguf import MALFORMED


async def test_malformed_files_leave_the_window_the_draft_and_the_former_model(tmp_path: Path) -> None:
    good = find_starter_model()
    assert good is not None
    window = RealEngineWindow(tmp_path / "data", good, None)
    async with window:
        await until(lambda: window.client.model_info is not None)
        worker = window.client.worker_pid
        window.type("Hi")
        for number, content in enumerate(MALFORMED.values()):
            path = tmp_path / f"model-{number}.gguf"
            path.write_bytes(content)
            window.everwarm.picker.model_chosen.emit(path)
            await until(lambda: path.name in window.notice("model"))  # noqa: B023 - awaited at once
            assert window.everwarm.open_chat.model_path == good
            assert window.draft == "Hi"
        window.everwarm.picker.menu().aboutToShow.emit()
        offered = [action for action in window.everwarm.picker.menu().actions() if action.isEnabled()]
        assert any(good.stem in action.text() for action in offered)
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.rows) == 2 and bool(window.rows[-1].text))
        window.everwarm.open_chat.stop()
        await window.idle()
        assert window.client.worker_pid == worker
    [question, answer] = await window.stored_branch()
    assert question.content == "Hi"
    assert answer.content
