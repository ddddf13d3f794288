"""A chat that is longer than its context, and replies that go on: the whole window with a scripted engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction

from desktop.chat.memory_mark import PINNED, PINNED_ABOVE, SEEN_AGAIN, STILL_SEEN
from desktop.conversations import ContextChoice, MessageStatus
from inference import ContextFit, ContextPolicy, ErrorCode, FinishReason, Message
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import Pause, delta, failed, finished, fit, reply

MakeWindow = Callable[..., RunningWindow]
TOO_LONG = "the chat is 9,012 tokens, the context holds 8,192: shorten it"


def refused(**changes: object) -> ContextFit:
    whole = fit(9012, 4100, cut=4, left_out=(0, 1, 2, 3), is_allowed=False)
    return replace(whole, **changes)  # type: ignore[arg-type]


def refuse(window: RunningWindow, **changes: object) -> None:
    window.engine.enqueue([failed(ErrorCode.PROMPT_TOO_LONG, TOO_LONG, refused(**changes))])


async def chat_of(window: RunningWindow, *questions: str) -> None:
    for question in questions:
        window.engine.enqueue(reply(f"Re {question}"))
        await window.ask(question)


async def answered_again(window: RunningWindow, action: str) -> None:
    before = len(window.engine.requests)
    window.act(action)
    await until(lambda: len(window.engine.requests) == before + 1)
    await window.idle()


async def test_a_message_that_does_not_fit_stays_with_both_numbers_and_what_can_be_done(
    window: RunningWindow, make_window: MakeWindow
) -> None:
    async with window:
        await chat_of(window, "One", "Two")
        refuse(window, n_ctx_train=32768)
        await window.ask("Three")
        assert window.texts == ["One", "Re One", "Two", "Re Two", "Three", ""]
        row = window.rows[-1]
        assert "9,012 tokens, the context holds 8,192" in row.error
        assert "16,384 tokens" in row.error
        assert "164 MB more memory" in row.error
        offered = (
            ("drop_oldest", "Leave out the oldest turns (4 messages)"),
            ("larger_context", "Larger context (16,384 tokens)"),
            ("edit", "Edit"),
        )
        assert row.actions == offered
        assert window.draft == ""
    again = make_window()
    async with again:
        assert again.rows[-1] == row
        # The oldest turns go, this once.
        again.engine.enqueue([delta("Hello"), finished("Hello", fit=replace(refused(), is_allowed=True))])
        await answered_again(again, "drop_oldest")
        assert again.engine.requests[-1].context.policy is ContextPolicy.DROP_OLDEST
        assert again.texts[-2:] == ["Three", "Hello"]
        assert again.rows[-2].mark == "The model no longer sees the 4 messages above"
        # The next message leaves out no more than that without being asked.
        again.engine.enqueue(reply("Four"))
        await again.ask("Next")
        rule = again.engine.requests[-1].context
        assert (rule.policy, rule.former_cut) == (ContextPolicy.REFUSE, 4)


async def test_edit_puts_the_message_back_into_the_composer(window: RunningWindow) -> None:
    async with window:
        await chat_of(window, "One")
        refuse(window, cut=2, left_out=(0, 1))
        await window.ask("Too long")
        assert [action for action, _ in window.rows[-1].actions] == ["drop_oldest", "edit"]
        window.type("typed since")
        window.act("edit")
        await until(lambda: window.draft == "Too long\n\ntyped since")
        assert window.texts == ["One", "Re One"]
        assert [message.content for message in await window.stored_branch()] == ["One", "Re One"]


async def test_a_larger_context_loads_the_model_again_and_answers(window: RunningWindow) -> None:
    async with window:
        await chat_of(window, "One")
        refuse(window, n_ctx_train=10_000, cut=2, left_out=(0, 1))
        await window.ask("Two")
        window.engine.enqueue(reply("Fits"))
        await answered_again(window, "larger_context")
        assert window.everwarm.settings.settings.n_ctx == 10_000
        assert window.engine.loaded[-1].n_ctx == window.engine.requests[-1].model.n_ctx == 10_000
        assert window.texts[-1] == "Fits"


async def test_safe_settings_are_not_outgrown_in_silence(window: RunningWindow, starter_model: Path) -> None:
    async with window:
        await chat_of(window, "One")
        refuse(window, n_ctx_train=10_000, cut=2, left_out=(0, 1))
        await window.ask("Two")
        settings = window.everwarm.settings
        settings.change(lambda s: replace(s, safe_models=(str(starter_model),)))
        window.act("larger_context")
        await until(lambda: "safe settings" in window.notice("told"))
        assert settings.settings.n_ctx is None
        assert window.texts == ["One", "Re One", "Two", ""]


async def test_a_chat_that_drops_its_oldest_turns_shows_where_the_memory_begins(
    window: RunningWindow, make_window: MakeWindow
) -> None:
    async with window:
        window.everwarm.full_context.choose(ContextChoice.DROP_OLDEST)
        await chat_of(window, "One", "Two")
        keys = [row.key for row in window.rows]
        transcript = window.everwarm.panel.transcript
        assert window.rows[1].menu == (("pin_message", "Pin for the model"),)
        transcript.action_triggered.emit(keys[1], "pin_message")
        await until(lambda: window.rows[1].standing == PINNED)
        # The engine keeps the question of a pinned reply too.
        cut = fit(9012, 4100, cut=4, left_out=(2, 3))
        window.engine.enqueue([delta("Hello"), finished("Hello", fit=cut)])
        await window.ask("Three")
        rule = window.engine.requests[-1].context
        assert (rule.policy, rule.pinned) == (ContextPolicy.DROP_OLDEST, (1,))
        mark = "The model no longer sees the 2 messages above, only what is pinned"
        assert [row.mark for row in window.rows] == ["", "", "", "", mark, ""]
        assert [row.standing for row in window.rows] == [STILL_SEEN, PINNED_ABOVE, "", "", "", ""]
        transcript.action_triggered.emit(keys[3], "pin_message")
        await until(lambda: window.rows[3].standing == SEEN_AGAIN)
        rows = window.rows
        bubble = transcript.shown_messages()[4]
        assert bubble.rows_origin.y() > transcript.shown_messages()[0].rows_origin.y()
    again = make_window()
    async with again:
        assert [(row.mark, row.standing) for row in again.rows] == [(r.mark, r.standing) for r in rows]
        assert again.everwarm.full_context.choice is ContextChoice.DROP_OLDEST
        again.everwarm.panel.transcript.action_triggered.emit(keys[3], "unpin_message")
        await until(lambda: again.rows[3].standing == "")


async def test_a_reply_cut_by_length_goes_on_in_the_same_message(window: RunningWindow) -> None:
    async with window:
        cut = finished("Once upon", FinishReason.LENGTH)
        window.engine.enqueue([delta("Once upon"), cut])
        await window.ask("Story")
        key = window.rows[-1].key
        assert window.rows[-1].actions == (("continue", "Continue"),)
        pause = Pause()
        whole = finished("Once upon a time", token_ids=(*cut.token_ids, *cut.token_ids))
        window.engine.enqueue([delta(" a time"), pause, whole])
        window.act("continue")
        await until(lambda: pause.reached and window.texts == ["Story", "Once upon a time"])
        begun = window.engine.requests[-1].begun
        assert begun == Message("assistant", "Once upon", cut.token_ids)
        assert [message.content for message in window.engine.requests[-1].messages or ()] == ["Story"]
        pause.go()
        await window.idle()
        assert window.texts == ["Story", "Once upon a time"]
        assert (window.rows[-1].key, window.rows[-1].actions) == (key, ())
        stored = (await window.stored_branch())[-1]
        assert (stored.content, stored.status) == ("Once upon a time", MessageStatus.COMPLETE)
        assert (stored.token_ids, stored.num_generation_tokens) == (whole.token_ids, 4)


async def test_a_stopped_reply_goes_on_after_a_restart_and_is_kept_when_it_is_stopped_unread(
    window: RunningWindow, make_window: MakeWindow
) -> None:
    async with window:
        pause = Pause()
        window.engine.enqueue([delta("Once"), pause])
        await window.send("Story")
        await until(lambda: pause.reached)
        window.press(Qt.Key.Key_Escape)
        await window.idle()
    again = make_window()
    async with again:
        assert [action for action, _ in again.rows[-1].actions] == ["continue", "retry"]
        nothing = finished("", FinishReason.CANCELLED, None)
        unread = replace(
            nothing,
            token_ids=(),
            num_generation_tokens=0,
            counts=replace(nothing.counts, num_prompt_tokens=0),
        )
        again.engine.enqueue([unread])
        await answered_again(again, "continue")
        assert again.texts == ["Story", "Once"]
        await until(lambda: not again.everwarm.turns.turns_of(again.everwarm.open_chat.id))
        stored = (await again.stored_branch())[-1]
        assert (stored.content, stored.status) == ("Once", MessageStatus.CANCELLED)


async def test_a_reply_that_filled_the_context_says_so_and_goes_on_without_the_oldest_turns(
    window: RunningWindow,
) -> None:
    async with window:
        await chat_of(window, "One")
        window.engine.enqueue([delta("Long"), finished("Long", FinishReason.CONTEXT)])
        await window.ask("Two")
        assert window.rows[-1].caption.startswith("Context full")
        assert window.rows[-1].actions == (("continue_dropping", "Continue without the oldest turns"),)
        refuse(window, num_sent_tokens=9000, cut=2, left_out=(0, 1))
        await answered_again(window, "continue_dropping")
        assert window.engine.requests[-1].context.policy is ContextPolicy.DROP_OLDEST
        # Refused, and nothing is lost.
        assert window.texts[-1] == "Long"
        assert "9,012 tokens" in window.rows[-1].error
        await until(lambda: not window.everwarm.turns.turns_of(window.everwarm.open_chat.id))
        assert (await window.stored_branch())[-1].content == "Long"


async def test_the_count_beside_the_composer_follows_what_is_typed(window: RunningWindow) -> None:
    async with window:
        button = window.everwarm.panel.composer.context_count
        await until(lambda: window.engine.model_info is not None)
        assert button.isHidden()
        window.engine.fit = lambda request: fit(1204)
        window.type("Hello")
        await until(lambda: not button.isHidden())
        assert button.text() == "1,204 of 8,192 tokens"
        assert window.engine.counted[-1].messages == (Message("user", "Hello"),)
        window.engine.fit = lambda request: fit(7000)
        window.type(" you")
        await until(lambda: button.text() == "7,000 of 8,192 tokens, nearly full")
        window.engine.fit = lambda request: refused()
        window.type(" there")
        await until(lambda: button.text() == "9,012 of 8,192 tokens: too long")
        assert "Without the 4 oldest messages" in button.toolTip()
        window.engine.fit = lambda request: replace(
            refused(), is_allowed=request.context.policy is ContextPolicy.DROP_OLDEST
        )
        next(a for a in button.menu().actions() if a.text() == "Leave out the oldest turns").trigger()
        await until(lambda: button.text() == "4,100 of 8,192 tokens")


async def test_the_choice_made_in_a_new_chat_is_kept_with_it(
    window: RunningWindow, make_window: MakeWindow
) -> None:
    async with window:
        menu = window.everwarm.panel.composer.context_count.menu()
        next(a for a in menu.actions() if a.text() == "Refuse the message").trigger()
        await chat_of(window, "One")
        assert window.engine.requests[-1].context.policy is ContextPolicy.REFUSE
    again = make_window()
    async with again:
        assert again.everwarm.full_context.choice is ContextChoice.STOP
        checked = [a for a in again.everwarm.window.findChildren(QAction) if a.isChecked()]
        assert "Refuse the message" in [action.text() for action in checked]


KILLED = """
import os, signal, sys
from pathlib import Path
from desktop.conversations import ConversationStore, MessageStatus, resume_reply
from inference import FinishReason, SamplingParams
store = ConversationStore.open(Path(sys.argv[1]))
chat = store.create_conversation()
question = store.add_user_message(chat.id, "Story", None)
reply = store.begin_reply(chat.id, question.id, "m.gguf", SamplingParams())
store.finish_reply(reply.id, status=MessageStatus.COMPLETE, content="Once", token_ids=(1, 2), finish_reason=FinishReason.LENGTH)
again = resume_reply(store, reply.id, "m.gguf", SamplingParams())
assert (again.status, again.content, again.token_ids) == (MessageStatus.STREAMING, "Once", (1, 2))
if sys.argv[2] == "saved":
    store.save_reply(reply.id, "Once upon", (1, 2, 3))
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_reply_that_went_on_keeps_its_text_when_everything_is_killed(make_window: MakeWindow) -> None:
    window = make_window()
    window.paths.prepare()
    for when, text in (("unsaved", "Once"), ("saved", "Once upon")):
        root = str(Path(__file__).parents[2])
        killed = await asyncio.to_thread(
            os.spawnve,
            os.P_WAIT,
            sys.executable,
            [sys.executable, "-c", KILLED, str(window.paths.database), when],
            {**os.environ, "PYTHONPATH": root},
        )
        assert killed == -signal.SIGKILL
        again = make_window()
        async with again:
            newest = again.everwarm.list_model.chats[0]
            assert newest is not None
            await again.everwarm.open_chat.open(newest.id)
            assert again.texts == ["Story", text]
            assert again.rows[-1].state == "interrupted"
            assert ("continue", "Continue") in again.rows[-1].actions
