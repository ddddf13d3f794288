"""Import and export with the window: by its menus and dialogs, with what is said about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QFileDialog, QLineEdit

from desktop import chat_exchange
from desktop.chat_exchange import NOTICE
from desktop.conversations import ConversationId, NotSaved
from desktop.exchange import ExportChoice, ExportFormat, IncomingChat, import_chats
from desktop.import_report import ImportReportWindow
from tests.desktop.exchange.imports import FIXTURES, write_json
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import reply

MakeWindow = Callable[..., RunningWindow]


def press_menu(window: RunningWindow, text: str) -> None:
    [action] = [a for a in window.everwarm.window.findChildren(QAction) if a.text() == text]
    action.trigger()


async def choose(window: RunningWindow, path: Path, name_filter: str = "") -> None:
    """In the dialog that is open or about to be."""
    await until(lambda: bool(window.everwarm.window.findChildren(QFileDialog)))
    dialog = window.everwarm.window.findChild(QFileDialog)
    if name_filter:
        dialog.selectNameFilter(name_filter)
        dialog.filterSelected.emit(name_filter)
    dialog.findChild(QLineEdit).setText(str(path))
    dialog.accept()


def is_done(window: RunningWindow, words: str) -> Callable[[], bool]:
    return lambda: words in window.notice(NOTICE)


async def test_chats_of_another_program_come_in_by_the_menu(window: RunningWindow, tmp_path: Path) -> None:
    path = Path(shutil.copy(FIXTURES / "chatgpt-conversations.json", tmp_path / "conversations.json"))
    async with window:
        press_menu(window, "&Import Chats…")
        await choose(window, path)
        await until(is_done(window, "Imported 3 chats (8 messages) from ChatGPT; 2 not imported"))
        assert window.titles == ["Sky colours", "No metadata at all", "Round and round"]
        # What went wrong can be read and copied.
        line = window.everwarm.notices.line(NOTICE)
        assert line is not None
        line.buttons[0].click()
        report = window.everwarm.window.findChild(ImportReportWindow)
        assert report.isVisible()
        lines = report.details.toPlainText().splitlines()
        assert lines[0] == "Not imported (2)"
        assert "Holiday plans (conversations.json): it has no messages; it may be a folder" in lines
        report.copy_button.click()
        copied = QGuiApplication.clipboard().text()
        assert copied.startswith(f"{report.summary.text()}\n\nNot imported\n    ")
        assert all(line in copied for line in lines if "(conversations.json)" in line)
        report.reject()
        press_menu(window, "&Import Chats…")
        await choose(window, path)
        await until(is_done(window, "No chat was imported; 3 were here already"))
        assert len(window.titles) == 3


async def test_a_folder_of_chats(window: RunningWindow) -> None:
    async with window:
        press_menu(window, "Import a &Folder of Chats…")
        await choose(window, FIXTURES / "jan")
        await until(is_done(window, "Imported 1 chat"))
        assert window.titles == ["Bread"]


async def test_a_file_without_chats_is_an_error(window: RunningWindow, tmp_path: Path) -> None:
    async with window:
        await window.everwarm.exchange.import_files([write_json(tmp_path / "a.json", {"a": 1})])
        assert window.notice(NOTICE) == "No chat was imported; 1 file without readable chats."
        line = window.everwarm.notices.line(NOTICE)
        assert line is not None
        assert line.property("kind") == "error"


async def test_the_open_chat_goes_out_with_its_draft_and_comes_in_elsewhere(
    make_window: MakeWindow, window: RunningWindow, tmp_path: Path
) -> None:
    target = tmp_path / "sky.json"
    async with window:
        window.engine.enqueue(reply("Because of Rayleigh."))
        await window.ask("Why is the sky blue?")
        window.type("and the sea")
        press_menu(window, "&Export This Chat…")
        await choose(window, target, name_filter="JSON with everything (*.json)")
        await until(is_done(window, f"Exported the chat to {target}"))
    [chat] = json.loads(target.read_text(encoding="utf-8"))["chats"]
    assert (chat["title"], chat["draft"]) == ("Why is the sky blue?", "and the sea")
    other = RunningWindow(tmp_path / "another folder", None)
    async with other:
        await other.everwarm.exchange.import_files([target])
        assert other.titles == ["Why is the sky blue?"]
        [conversation] = [other.everwarm.list_model.chats[0]]
        assert conversation is not None
        await other.everwarm.open_chat.open(conversation.id)
        assert other.texts == ["Why is the sky blue?", "Because of Rayleigh."]
        assert other.draft == "and the sea"


async def test_all_chats_go_out_and_private_ones_are_counted(window: RunningWindow, tmp_path: Path) -> None:
    async with window:
        press_menu(window, "Export &All Chats…")
        await until(is_done(window, "There are no chats to export yet."))
        press_menu(window, "&Export This Chat…")
        await until(is_done(window, "There is no chat to export yet"))
        open_chat = window.everwarm.open_chat
        for text in ("First", "Second"):
            await open_chat.open(None, is_private=text == "Second")
            window.engine.enqueue(reply(f"{text} answer"))
            await window.ask(text)
        await until(lambda: len(window.titles) == 2)
        press_menu(window, "Export &All Chats…")
        # The name's ending counts where it says something else than the filter.
        await choose(window, tmp_path / "all.html", name_filter="Markdown (*.md)")
        await until(is_done(window, "Exported 2 chats to"))
        assert window.notice(NOTICE).endswith("all.html. 1 of them private.")
    text = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert "First answer" in text
    assert "Second answer" in text


async def test_an_export_that_cannot_be_written_says_so(window: RunningWindow, tmp_path: Path) -> None:
    async with window:
        window.engine.enqueue(reply("Yes"))
        await window.ask("Hm?")
        conversation = window.everwarm.list_model.chats[0]
        assert conversation is not None
        choice = ExportChoice(ExportFormat.MARKDOWN)
        await window.everwarm.exchange.export([conversation], tmp_path / "gone" / "a.md", choice)
        assert "a.md could not be written" in window.notice(NOTICE)


@pytest.fixture
def second_chat_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chat of an import comes in when the import is asked to stop, and not before."""

    def import_slowly(paths, columns, add, progressed, is_stopped):  # type: ignore[no-untyped-def]
        asked_to_stop = is_stopped.__self__
        begun: list[IncomingChat] = []

        def add_slowly(chat: IncomingChat) -> ConversationId | None:
            begun.append(chat)
            assert len(begun) == 1 or asked_to_stop.wait(30)
            return add(chat)

        return import_chats(paths, columns, add_slowly, progressed, is_stopped)

    monkeypatch.setattr(chat_exchange, "import_chats", import_slowly)


@pytest.mark.usefixtures("second_chat_waits")
async def test_an_import_shows_how_far_it_is_and_can_be_stopped(window: RunningWindow) -> None:
    async with window:
        exchange = window.everwarm.exchange
        work = window.everwarm.background.start(exchange.import_files([FIXTURES]))
        await until(is_done(window, "Importing chats: 1"))
        assert await exchange.import_files([FIXTURES]) is None
        assert "still going on" in window.notice("exchange busy")
        line = window.everwarm.notices.line(NOTICE)
        assert line is not None
        line.buttons[0].click()
        report = await work
        assert report is not None
        assert report.num_imported == 2
        assert "It was stopped; what had come in stays." in window.notice(NOTICE)
        assert len(window.titles) == 2


@pytest.mark.usefixtures("second_chat_waits")
async def test_quitting_ends_an_import_between_two_chats(make_window: MakeWindow) -> None:
    async with make_window() as window:
        window.everwarm.background.start(window.everwarm.exchange.import_files([FIXTURES]))
        await until(is_done(window, "Importing chats: 1"))
    async with make_window() as window:
        assert len(window.titles) == 2


async def test_a_full_disk_ends_the_import_and_says_so(
    window: RunningWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NotSaved("Not saved: the disk is full. Free some space, then try again.")

    monkeypatch.setattr(chat_exchange, "add_incoming", full)
    async with window:
        await window.everwarm.exchange.import_files([FIXTURES])
        assert "No chat was imported. Not saved: the disk is full." in window.notice(NOTICE)
