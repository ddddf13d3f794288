"""Turns against the real conversation store and a scripted engine; no widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.conversation_tasks import ConversationTasks
from desktop.chat import turn as turn_module
from desktop.chat.turn import QUIT_ERROR, Turn
from desktop.chat.turn_queue import TurnQueue
from desktop.conversations import (
    ContextChoice,
    Conversation,
    ConversationStore,
    MessageStatus,
    NotSaved,
    StoredMessage,
    set_context_choice,
)
from desktop.garbage_collection import MainThreadGarbageCollection
from inference import ErrorCode, FinishReason, ModelConfig, Phase, Reasoning, SamplingParams, TokenDelta
from tests.desktop.running_window import until
from tests.desktop.scripted_engine import Pause, ScriptedEngine, delta, failed, finished, phase, reply

MODEL = ModelConfig("/models/a.gguf")


class Desk:
    """A store on disk, a scripted engine and the turns between them; used in an `async with`."""

    chats: ConversationTasks
    turns: TurnQueue

    def __init__(self, database: Path) -> None:
        self.engine = ScriptedEngine()
        self._database = database
        self._faults: list[BaseException] = []

    async def __aenter__(self) -> None:
        self._garbage_collection = MainThreadGarbageCollection()
        self._garbage_collection.start()
        self._background = BackgroundTasks(self._faults.append)
        self.chats = ConversationTasks(lambda: ConversationStore.open(self._database))
        await self.chats.open()
        self.turns = TurnQueue(self.chats, self.engine, self._background)

    async def __aexit__(self, *_error: object) -> None:
        await self._background.cancel()
        await self.chats.close()
        self._garbage_collection.stop()
        assert self._faults == []

    async def new_chat(self) -> Conversation:
        return await self.chats.run(ConversationStore.create_conversation)

    async def new_strict_chat(self) -> Conversation:
        """Which refuses what does not fit."""
        conversation = await self.new_chat()
        await self.chats.run(set_context_choice, conversation.id, ContextChoice.STOP)
        return conversation

    async def ask(self, conversation: Conversation, text: str) -> Turn:
        parent = (await self.chats.run(ConversationStore.conversation, conversation.id)).head_id
        question = await self.chats.run(ConversationStore.add_user_message, conversation.id, text, parent)
        return await self.turns.answer(question, MODEL, SamplingParams())

    async def branch(self, conversation: Conversation) -> list[StoredMessage]:
        return await self.chats.run(ConversationStore.branch, conversation.id)

    async def stored(self, turn: Turn) -> StoredMessage:
        return await self.chats.run(ConversationStore.message, turn.question.reply_id)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "chats.sqlite3")


def fail_writes(desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], None]:
    """Make a write of the store raise NotSaved until the returned function is called."""
    original = getattr(ConversationStore, name)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotSaved("Not saved: the disk is full.")

    monkeypatch.setattr(ConversationStore, name, refuse)
    return lambda: monkeypatch.setattr(ConversationStore, name, original)


async def test_a_finished_reply_is_on_disk_with_its_figures(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        desk.engine.enqueue(reply("Hello"))
        turn = await desk.ask(conversation, "Hi")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        stored = await desk.stored(turn)
        end = turn.finished
        assert end is not None
        assert (stored.content, stored.status) == ("Hello", MessageStatus.COMPLETE)
        assert (stored.counts, stored.timings, stored.token_ids) == (end.counts, end.timings, end.token_ids)
        assert (stored.seed, stored.decode_tokens_per_second) == (end.seed, end.decode_tokens_per_second)


async def test_the_engine_is_asked_with_the_branch_up_to_the_question(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        desk.engine.enqueue(reply("One"))
        desk.engine.enqueue(reply("Two"))
        await desk.ask(conversation, "First")
        await desk.ask(conversation, "Second")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        asked = [[message.content for message in request.messages or ()] for request in desk.engine.requests]
        assert asked == [["First"], ["First", "One", "Second"]]


async def test_a_question_asked_during_a_reply_is_on_disk_at_once_and_answered_next(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        pause = Pause()
        desk.engine.enqueue([phase(Phase.DECODE), delta("One"), pause, finished("One")])
        desk.engine.enqueue(reply("Two"))
        await desk.ask(conversation, "First")
        await until(lambda: pause.reached)
        await desk.ask(conversation, "Second")
        assert [message.content for message in await desk.branch(conversation)][2] == "Second"
        assert len(desk.engine.requests) == 1
        pause.go()
        await until(lambda: not desk.turns.turns_of(conversation.id))
        branch = await desk.branch(conversation)
        assert [message.content for message in branch] == ["First", "One", "Second", "Two"]


async def test_two_chats_are_answered_side_by_side(desk: Desk) -> None:
    async with desk:
        one, two = await desk.new_chat(), await desk.new_chat()
        pause = Pause()
        desk.engine.enqueue([delta("slow"), pause, finished("slow")])
        desk.engine.enqueue(reply("quick"))
        await desk.ask(one, "a")
        await until(lambda: pause.reached)
        await desk.ask(two, "b")
        await until(lambda: not desk.turns.turns_of(two.id))
        assert desk.turns.replying() == {one.id}
        pause.go()
        await until(lambda: not desk.turns.replying())


async def test_stopping_keeps_what_was_written_and_marks_it(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        desk.engine.enqueue([phase(Phase.DECODE), delta("Half a"), Pause(), finished("never")])
        turn = await desk.ask(conversation, "Hi")
        await until(lambda: turn.text != "")
        desk.turns.stop(conversation.id)
        desk.turns.stop(conversation.id)
        await until(lambda: not desk.turns.turns_of(conversation.id))
        stored = await desk.stored(turn)
        assert (stored.content, stored.status) == ("Half a", MessageStatus.CANCELLED)
        assert stored.finish_reason is FinishReason.CANCELLED
        assert desk.engine.calls.count("abort") == 1


async def test_a_waiting_question_can_be_stopped_before_the_engine_hears_of_it(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        pause = Pause()
        desk.engine.enqueue([delta("One"), pause, finished("One")])
        await desk.ask(conversation, "First")
        second = await desk.ask(conversation, "Second")
        second.stop()
        pause.go()
        await until(lambda: not desk.turns.turns_of(conversation.id))
        assert len(desk.engine.requests) == 1
        assert (await desk.stored(second)).status is MessageStatus.CANCELLED


async def test_a_reply_is_saved_while_it_streams(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk:
        # With the write a reply on disk is at most a second behind.
        assert turn_module.SAVE_PAUSE_S <= 0.8
        monkeypatch.setattr(turn_module, "SAVE_PAUSE_S", 0.01)
        conversation = await desk.new_chat()
        pause = Pause()
        later = Pause()
        script = [delta("Half"), delta(" a"), pause, delta(" re"), later, finished("Half a reply")]
        desk.engine.enqueue(script)
        turn = await desk.ask(conversation, "Hi")
        saved: list[None] = []
        turn.saved.connect(lambda: saved.append(None))
        for num_saves, text, streams_on in ((1, "Half a", pause), (2, "Half a re", later)):
            await until(lambda: len(saved) >= num_saves)  # noqa: B023 - awaited at once
            stored = await desk.stored(turn)
            assert (stored.content, stored.status) == (text, MessageStatus.STREAMING)
            streams_on.go()
        await until(lambda: not desk.turns.turns_of(conversation.id))


async def test_a_dead_engine_leaves_the_partial_reply_marked_and_the_next_question_is_answered(
    desk: Desk,
) -> None:
    async with desk:
        conversation = await desk.new_chat()
        desk.engine.enqueue([delta("Half"), failed(ErrorCode.ENGINE_DIED, "the engine stopped (SIGSEGV)")])
        desk.engine.enqueue(reply("Whole"))
        turn = await desk.ask(conversation, "Hi")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        stored = await desk.stored(turn)
        assert (stored.content, stored.status) == ("Half", MessageStatus.INTERRUPTED)
        assert stored.error == "the engine stopped (SIGSEGV)"
        again = await desk.ask(conversation, "Go on")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        assert (await desk.stored(again)).content == "Whole"


async def test_a_question_that_is_too_long_goes_back_to_the_draft(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_strict_chat()
        desk.engine.enqueue([failed(ErrorCode.PROMPT_TOO_LONG, "9,000 tokens, the context holds 8,192")])
        back: list[tuple[str, str]] = []
        desk.turns.withdrawn.connect(lambda turn, why: back.append((turn.question.content, why)))
        await desk.ask(conversation, "A long story")
        await until(lambda: bool(back))
        assert back == [("A long story", "9,000 tokens, the context holds 8,192")]
        assert await desk.branch(conversation) == []
        stored = await desk.chats.run(ConversationStore.conversation, conversation.id)
        assert stored.draft == "A long story"
        assert not desk.turns.replying()


async def test_what_was_asked_after_a_question_that_is_too_long_goes_back_with_it(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_strict_chat()
        pause = Pause()
        desk.engine.enqueue([pause, failed(ErrorCode.PROMPT_TOO_LONG, "too long")])
        back: list[str] = []
        desk.turns.withdrawn.connect(lambda turn, why: back.append(turn.question.content))
        await desk.ask(conversation, "First")
        await desk.ask(conversation, "Second")
        pause.go()
        await until(lambda: len(back) == 2)
        assert len(desk.engine.requests) == 1
        stored = await desk.chats.run(ConversationStore.conversation, conversation.id)
        assert stored.draft == "First\n\nSecond"


async def test_a_question_whose_first_try_was_answered_stays_where_it_is(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_strict_chat()
        desk.engine.enqueue([delta("Half"), failed(ErrorCode.ENGINE_DIED, "died")])
        desk.engine.enqueue([failed(ErrorCode.PROMPT_TOO_LONG, "too long")])
        first = await desk.ask(conversation, "Hi")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        question = await desk.chats.run(ConversationStore.message, first.question.user_id)
        second = await desk.turns.answer(question, MODEL, SamplingParams())
        kept: list[None] = []
        second.saved.connect(lambda: kept.append(None))
        await until(lambda: bool(kept))
        stored = await desk.stored(second)
        assert (stored.status, stored.error) == (MessageStatus.FAILED, "too long")
        assert [message.content for message in await desk.branch(conversation)] == ["Hi", ""]


async def test_the_end_of_a_reply_waits_for_a_full_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk:
        monkeypatch.setattr(turn_module, "RETRY_PAUSE_S", 0.01)
        mend = fail_writes(desk, monkeypatch, "finish_reply")
        conversation = await desk.new_chat()
        desk.engine.enqueue(reply("Hello"))
        told: list[str] = []
        desk.turns.not_saved.connect(told.append)
        turn = await desk.ask(conversation, "Hi")
        await until(lambda: len(told) >= 2)
        assert not turn.answering
        assert desk.turns.turns_of(conversation.id) == [turn]
        mend()
        await until(lambda: not desk.turns.turns_of(conversation.id))
        assert [message.content for message in await desk.branch(conversation)] == ["Hi", "Hello"]


async def test_a_question_after_a_full_disk_is_asked_with_the_reply_that_was_not_saved_yet(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk:
        # Whoever frees the disk and asks at once does not wait for the next try.
        monkeypatch.setattr(turn_module, "RETRY_PAUSE_S", 3600.0)
        mend = fail_writes(desk, monkeypatch, "finish_reply")
        conversation = await desk.new_chat()
        desk.engine.enqueue(reply("Hello"))
        desk.engine.enqueue(reply("Fine"))
        told: list[str] = []
        desk.turns.not_saved.connect(told.append)
        first = await desk.ask(conversation, "Hi")
        await until(lambda: bool(told))
        mend()
        second = await desk.ask(conversation, "How are you?")
        await until(lambda: not second.answering)
        asked = [message.content for message in desk.engine.requests[-1].messages or ()]
        assert asked == ["Hi", "Hello", "How are you?"]
        assert (await desk.stored(first)).content == "Hello"


async def test_quitting_keeps_the_partial_reply_and_marks_the_waiting_one(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        desk.engine.enqueue([delta("Half"), Pause(), finished("never")])
        running = await desk.ask(conversation, "First")
        waiting = await desk.ask(conversation, "Second")
        await until(lambda: running.text != "")
        await desk.turns.interrupt_all()
        first, second = await desk.stored(running), await desk.stored(waiting)
        assert (first.content, first.status, first.error) == ("Half", MessageStatus.INTERRUPTED, QUIT_ERROR)
        assert (second.content, second.status) == ("", MessageStatus.INTERRUPTED)
        assert len(desk.engine.requests) == 1


async def test_quitting_with_a_full_disk_does_not_wait_for_room(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk:
        fail_writes(desk, monkeypatch, "finish_reply")
        conversation = await desk.new_chat()
        desk.engine.enqueue(reply("Hello"))
        turn = await desk.ask(conversation, "Hi")
        await turn.answered.wait()
        await desk.turns.interrupt_all()
        assert turn.text == "Hello"


async def test_streamed_text_reaches_listeners_in_order_and_whole(desk: Desk) -> None:
    async with desk:
        conversation = await desk.new_chat()
        words = [f"w{index} " for index in range(50)]
        desk.engine.enqueue(
            [
                *(delta(word, index, index / 100) for index, word in enumerate(words, 1)),
                finished("".join(words)),
            ]
        )
        turn = await desk.ask(conversation, "Hi")
        heard: list[str] = []
        deltas: list[TokenDelta] = []
        turn.streamed.connect(heard.append)
        turn.reported.connect(lambda event: isinstance(event, TokenDelta) and deltas.append(event))
        await until(lambda: not desk.turns.turns_of(conversation.id))
        assert "".join(heard) == "".join(words)
        assert sum(len(each.token_ids) for each in deltas) == len(words)
        assert len(heard) < len(words)


async def test_reasoning_is_kept_apart_from_the_answer_also_of_a_reply_that_is_cut(desk: Desk) -> None:
    async with desk:
        thought = replace(delta(""), reasoning="Hmm, ", num_reasoning_tokens=1)
        desk.engine.enqueue([phase(Phase.DECODE), thought, Pause(), finished("never")])
        turn = await desk.ask(await desk.new_chat(), "Is it?")
        await until(lambda: turn.reasoning is not None)
        assert (turn.text, turn.reasoning) == ("", Reasoning("Hmm, ", 1, 0.0, was_cut=True))
        await desk.turns.interrupt_all()
        stored = await desk.stored(turn)
        assert (stored.content, stored.reasoning) == ("", turn.reasoning)


async def pause_until_saved(desk: Desk, turn: Turn, reasoning: Reasoning) -> None:
    # What is on disk tells nobody when it changes.
    while (await desk.stored(turn)).reasoning != reasoning:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_what_was_thought_before_an_answer_is_on_disk_while_it_streams_and_no_part_of_the_next_prompt(
    desk: Desk,
) -> None:
    async with desk:
        conversation = await desk.new_chat()
        whole = Reasoning("Hmm, so.", 2, 0.5, was_cut=False)
        pause = Pause()
        desk.engine.enqueue(
            [
                replace(delta(""), reasoning="Hmm, ", num_reasoning_tokens=1),
                replace(delta("", 2), reasoning="so.", num_reasoning_tokens=2, reasoning_s=0.5),
                replace(delta("Yes.", 3), num_reasoning_tokens=2, reasoning_s=0.5),
                pause,
                finished("Yes.", reasoning=whole),
            ]
        )
        desk.engine.enqueue(reply("Two"))
        turn = await desk.ask(conversation, "Is it?")
        await pause_until_saved(desk, turn, whole)
        pause.go()
        await until(lambda: not desk.turns.turns_of(conversation.id))
        assert (await desk.stored(turn)).reasoning == whole
        await desk.ask(conversation, "And?")
        await until(lambda: not desk.turns.turns_of(conversation.id))
        asked = [message.content for message in desk.engine.requests[-1].messages or ()]
        assert asked == ["Is it?", "Yes.", "And?"]
