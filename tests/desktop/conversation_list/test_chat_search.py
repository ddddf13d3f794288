"""Searching all chats in the whole window, with keys."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.chat.block_layout import block_text
from desktop.conversations import ConversationStore, MessageStatus
from inference import Reasoning
from tests.desktop.conversations.turns import answer, ask, begin
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, finished


def prepared(window: RunningWindow, fill: Callable[[ConversationStore], None]) -> RunningWindow:
    window.paths.prepare()
    with contextlib.closing(ConversationStore.open(window.paths.database)) as store:
        fill(store)
    return window


def two_chats(store: ConversationStore) -> None:
    for title, words in (("Sea", "tides"), ("Mountains", "avalanche")):
        chat = store.create_conversation(title)
        for number in range(30):
            question = ask(store, chat, f"Question {number}")
            answer(store, chat, question, f"Reply {number}\n\n" + "and more text " * 40)
        answer(store, chat, ask(store, chat, "Last"), f"On **{words}** and winds")
        for number in range(30):
            answer(store, chat, ask(store, chat, f"Later {number}"), "and more text " * 40)


async def search(window: RunningWindow, typed: str) -> list[str]:
    """What the rows say."""
    QTest.keyClick(
        window.input, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    field = window.everwarm.list_panel.search_field
    field.selectAll()
    QTest.keyClicks(field, typed)
    await window.everwarm.list_side.search.search()
    return shown(window)


def shown(window: RunningWindow) -> list[str]:
    model = window.everwarm.list_panel.results.model()
    indexes = [model.index(row, 0) for row in range(model.rowCount())]
    return [str(index.data(Qt.ItemDataRole.AccessibleTextRole)) for index in indexes]


def marked(window: RunningWindow) -> str:
    """The text of the mark that one was brought to, if it is on the screen."""
    transcript = window.everwarm.panel.transcript
    marks = transcript.shown_marks
    if marks is None or (place := marks.current) is None:
        return ""
    message = next(m for m in transcript.shown_messages() if m.message.key == place.key)
    y = message.y_of(place) + transcript._layout.top_of(transcript._layout.index_of(place.key))
    assert transcript._top <= y <= transcript._top + transcript.viewport().height()
    blocks = message.reasoning_blocks() if place.part == "reasoning" else message.text_blocks()
    return block_text(blocks[place.row])[place.start : place.end]


async def test_enter_opens_the_chat_at_the_message_with_the_words_marked(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        [row] = await search(window, "aval")
        assert row.startswith("Mountains, ")
        assert row.endswith("Reply: On avalanche and winds")
        field = window.everwarm.list_panel.search_field
        assert QApplication.focusWidget() is field
        QTest.keyClick(field, Qt.Key.Key_Return)
        await until(lambda: window.everwarm.panel.transcript.shown_marks is not None)
        assert window.everwarm.panel.title == "Mountains"
        assert marked(window) == "aval"
        QTest.keyClick(field, Qt.Key.Key_Escape)
        assert not window.everwarm.list_panel.shows_results
        assert window.everwarm.panel.transcript.shown_marks is None
        assert QApplication.focusWidget() is window.input


async def test_arrow_keys_go_through_the_results_and_back_to_the_field(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        assert len(await search(window, "winds")) == 2
        field, results = window.everwarm.list_panel.search_field, window.everwarm.list_panel.results
        QTest.keyClick(field, Qt.Key.Key_Down)
        assert (QApplication.focusWidget(), results.currentIndex().row()) == (results, 0)
        QTest.keyClick(results, Qt.Key.Key_Down)
        QTest.keyClick(results, Qt.Key.Key_Return)
        await until(lambda: window.everwarm.panel.title == "Sea")
        QTest.keyClick(results, Qt.Key.Key_Up)
        QTest.keyClick(results, Qt.Key.Key_Up)
        assert QApplication.focusWidget() is field


async def test_typing_searches_after_a_pause_and_only_for_what_is_typed_last(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        search = window.everwarm.list_side.search
        field = window.everwarm.list_panel.search_field
        QTest.keyClicks(field, "tid")
        assert search.num_searches == 0
        is_typed = threading.Event()
        # Whatever the database does meanwhile, the search waits behind it.
        busy = window.everwarm.background.start(window.everwarm.chats.run(lambda _: is_typed.wait()))
        asked = window.everwarm.background.start(search.search())
        await until(lambda: search.num_searches == 1)
        QTest.keyClicks(field, "xx")
        QTest.keyClicks(field, "y")
        is_typed.set()
        await asyncio.gather(busy, asked)
        assert (search.num_searches, shown(window)) == (2, [])
        assert "“tidxxy”" in window.everwarm.list_panel.results_words.text()
        for _ in range(3):
            QTest.keyClick(field, Qt.Key.Key_Backspace)
        await until(lambda: len(shown(window)) == 1)


async def test_a_title_is_a_hit_too_and_opens_its_chat_at_the_end(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        [row] = await search(window, "mountains")
        assert row.startswith("Chat Mountains, ")
        QTest.keyClick(window.everwarm.list_panel.search_field, Qt.Key.Key_Return)
        await until(lambda: window.everwarm.panel.title == "Mountains")
        assert window.everwarm.panel.transcript.shown_marks is None


async def test_a_hit_on_another_branch_shows_that_branch(window: RunningWindow) -> None:
    def fill(store: ConversationStore) -> None:
        chat = store.create_conversation("Branches")
        root = ask(store, chat, "Root")
        old = answer(store, chat, root, "The old answer")
        store.add_user_message(chat.id, "A follow-up", old)
        store.set_head(chat.id, root)
        answer(store, chat, root, "The new answer")

    async with prepared(window, fill):
        await search(window, "old answer")
        QTest.keyClick(window.everwarm.list_panel.search_field, Qt.Key.Key_Return)
        await until(lambda: window.texts == ["Root", "The old answer", "A follow-up"])
        assert marked(window) == "old"
        assert [message.content for message in await window.stored_branch()][-1] == "A follow-up"


async def test_while_a_chat_is_answered_its_branch_stays(window: RunningWindow) -> None:
    def fill(store: ConversationStore) -> None:
        chat = store.create_conversation("Branches")
        root = ask(store, chat, "Root")
        answer(store, chat, root, "The old answer")
        store.set_head(chat.id, root)
        answer(store, chat, root, "The new answer")

    async with prepared(window, fill):
        window.everwarm.list_view.open_next()
        await until(lambda: window.texts == ["Root", "The new answer"])
        window.engine.enqueue([delta("Well"), Pause(), finished("Well")])
        await window.send("More")
        await search(window, "old answer")
        QTest.keyClick(window.everwarm.list_panel.search_field, Qt.Key.Key_Return)
        await until(lambda: "another branch" in window.notice("told"))
        assert window.texts[:2] == ["Root", "The new answer"]


async def test_a_hit_in_a_thought_unfolds_it(window: RunningWindow) -> None:
    def fill(store: ConversationStore) -> None:
        chat = store.create_conversation("Thoughts")
        store.finish_reply(
            begin(store, chat, ask(store, chat, "Why?")),
            status=MessageStatus.COMPLETE,
            content="Because.",
            token_ids=None,
            reasoning=Reasoning("Let me consider Rayleigh scattering", 5, 1.0, False),
        )

    async with prepared(window, fill):
        await search(window, "rayleigh")
        QTest.keyClick(window.everwarm.list_panel.search_field, Qt.Key.Key_Return)
        await until(lambda: window.everwarm.panel.transcript.shown_marks is not None)
        assert marked(window) == "Rayleigh"
        assert window.everwarm.panel.transcript.shown_messages()[1].is_reasoning_unfolded


async def test_what_is_not_a_word_asks_for_one(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        assert await search(window, '"*') == []
        assert "letter" in window.everwarm.list_panel.results_words.text()


async def test_a_chat_that_is_deleted_leaves_the_results(window: RunningWindow) -> None:
    async with prepared(window, two_chats):
        assert len(await search(window, "winds")) == 2
        chat = window.everwarm.list_model.chats[0]
        assert chat is not None
        await window.everwarm.list_actions.delete(chat.id)
        await until(lambda: len(shown(window)) == 1)
