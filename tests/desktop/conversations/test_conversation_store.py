"""What the store keeps, and how a turn passes through it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from desktop.conversations import (
    ChatSettings,
    ConversationId,
    ConversationStore,
    MessageId,
    MessageStatus,
    NoSuchRecord,
    set_chat_settings,
)
from desktop.conversations.chat_title import title_from
from inference import FinishReason, Miss, MissReason, PromptCounts, RequestTimings
from tests.desktop.conversations.turns import IDS, SAMPLING, answer, ask, begin

COUNTS = PromptCounts(num_prompt_tokens=40, reused_tokens=10, restored_tokens=20, prefilled_tokens=10)
TIMINGS = RequestTimings(
    queued_s=0.1,
    load_s=0.0,
    tokenize_s=0.01,
    restore_s=0.02,
    prefill_s=0.3,
    ttft_s=0.4,
    decode_s=2.5,
    e2e_s=3.0,
)


def test_a_new_conversation_is_empty_and_keeps_title_and_model(store: ConversationStore) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    conversation = store.create_conversation("Physics", "/models/a.gguf")
    assert (conversation.title, conversation.model_path) == ("Physics", "/models/a.gguf")
    assert conversation.head_id is None
    assert conversation.settings == ChatSettings()
    assert conversation.draft == ""
    assert conversation.deleted_at is None
    assert before <= conversation.created_at == conversation.updated_at <= datetime.now(UTC)
    assert store.branch(conversation.id) == []


def test_a_sent_message_becomes_head_takes_the_draft_away_and_names_the_chat(
    store: ConversationStore,
) -> None:
    conversation = store.create_conversation()
    store.set_draft(conversation.id, "Why is the sky")
    message = store.add_user_message(conversation.id, "Why is the sky blue?", None)
    assert (message.role, message.content, message.status) == ("user", "Why is the sky blue?", "complete")
    conversation = store.conversation(conversation.id)
    assert (conversation.head_id, conversation.draft) == (message.id, "")
    assert conversation.title == "Why is the sky blue?"


def test_a_title_that_was_given_stays(store: ConversationStore) -> None:
    conversation = store.create_conversation("Mine")
    ask(store, conversation)
    assert store.conversation(conversation.id).title == "Mine"


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("  two\n\n lines\t", "two lines"),
        ("word " * 30, "word word word word word word word word word…"),
        ("難" * 100, "難" * 48 + "…"),
        ("x" * 48, "x" * 48),
        ("bell \x07 and \u202eoverride", "bell and override"),
        ("👩\u200d👩\u200d👧 family", "👩\u200d👩\u200d👧 family"),
        ("\x00\x01", ""),
        ("", ""),
    ],
)
def test_a_title_is_the_first_words_on_one_line(content: str, title: str) -> None:
    assert title_from(content) == title


def test_a_reply_comes_back_with_everything_it_was_finished_with(database: Path) -> None:
    store = ConversationStore.open(database)
    conversation = store.create_conversation()
    question = ask(store, conversation)
    reply = store.begin_reply(conversation.id, question, "/models/a.gguf", SAMPLING)
    assert (reply.role, reply.content, reply.status) == ("assistant", "", MessageStatus.STREAMING)
    store.save_reply(reply.id, "Ray", IDS[:1])
    finished = store.finish_reply(
        reply.id,
        status=MessageStatus.CANCELLED,
        content="Rayleigh",
        token_ids=IDS,
        finish_reason=FinishReason.CANCELLED,
        seed=2**32 - 2,
        counts=COUNTS,
        timings=TIMINGS,
        num_generation_tokens=3,
        decode_tokens_per_second=41.5,
        error="stopped",
    )
    store.close()

    store = ConversationStore.open(database)
    [_, reopened] = store.branch(conversation.id)
    store.close()
    assert reopened == finished
    assert (reopened.content, reopened.token_ids, reopened.status) == (
        "Rayleigh",
        IDS,
        MessageStatus.CANCELLED,
    )
    assert (reopened.model_path, reopened.sampling, reopened.seed) == ("/models/a.gguf", SAMPLING, 2**32 - 2)
    assert (reopened.finish_reason, reopened.error) == (FinishReason.CANCELLED, "stopped")
    assert (reopened.counts, reopened.timings) == (COUNTS, TIMINGS)
    assert (reopened.num_generation_tokens, reopened.decode_tokens_per_second) == (3, 41.5)


def test_a_reply_without_a_first_token_keeps_its_other_timings(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = begin(store, conversation, ask(store, conversation))
    timings = RequestTimings(0.0, 0.0, 0.0, 0.0, 0.5, None, 0.0, 0.5)
    finished = store.finish_reply(
        reply_id, status=MessageStatus.CANCELLED, content="", token_ids=(), timings=timings
    )
    assert finished.timings == timings
    assert finished.token_ids == ()
    assert finished.counts is None


def test_progress_is_kept_while_a_reply_streams(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = begin(store, conversation, ask(store, conversation))
    store.save_reply(reply_id, "half of", IDS)
    reply = store.message(reply_id)
    assert (reply.content, reply.token_ids, reply.status) == ("half of", IDS, MessageStatus.STREAMING)


def test_a_reply_that_has_ended_cannot_be_written_again(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = answer(store, conversation, ask(store, conversation), "done")
    with pytest.raises(NoSuchRecord):
        store.save_reply(reply_id, "late", None)
    with pytest.raises(NoSuchRecord):
        store.finish_reply(reply_id, status=MessageStatus.FAILED, content="late", token_ids=None)
    assert store.message(reply_id).content == "done"


def test_a_reply_cannot_be_finished_as_streaming(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = begin(store, conversation, ask(store, conversation))
    with pytest.raises(ValueError, match="streaming"):
        store.finish_reply(reply_id, status=MessageStatus.STREAMING, content="", token_ids=None)


def test_replies_left_streaming_are_marked_interrupted_and_ended_ones_are_not(
    store: ConversationStore,
) -> None:
    conversation = store.create_conversation()
    done_id = answer(store, conversation, ask(store, conversation), "done")
    reply_id = begin(store, conversation, ask(store, conversation, "And the sea?"))
    store.save_reply(reply_id, "Because", IDS)
    assert store.mark_interrupted() == 1
    reply = store.message(reply_id)
    assert (reply.status, reply.content, reply.token_ids) == (MessageStatus.INTERRUPTED, "Because", IDS)
    assert reply.error is not None
    assert store.message(done_id).status is MessageStatus.COMPLETE
    assert store.mark_interrupted() == 0


def test_the_branch_shown_runs_from_the_first_message_to_the_head(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    question = ask(store, conversation)
    first = answer(store, conversation, question, "one")
    second = answer(store, conversation, question, "two")
    assert [message.id for message in store.branch(conversation.id)] == [question, second]
    store.set_head(conversation.id, first)
    assert [message.id for message in store.branch(conversation.id)] == [question, first]
    store.set_head(conversation.id, None)
    assert store.branch(conversation.id) == []


def test_a_branch_of_ten_thousand_messages_is_read_in_one_query(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    first = ask(store, conversation)
    columns = "conversation_id, parent_id, role, status, created_at, updated_at, content"
    store._db.conn.executemany(
        f"INSERT INTO messages ({columns}) VALUES (?, ?, 'user', 'complete', 0, 0, ?)",
        ((conversation.id, parent, str(parent)) for parent in range(first, first + 9_999)),
    )
    store._db.conn.commit()
    store.set_head(conversation.id, MessageId(first + 9_999))
    queries: list[str] = []
    with store._db.tracer(lambda sql, _: queries.append(sql)):
        branch = store.branch(conversation.id)
    assert [message.id for message in branch] == list(range(first, first + 10_000))
    assert len(queries) == 1


def test_a_parent_or_head_of_another_conversation_is_refused(store: ConversationStore) -> None:
    one, other = store.create_conversation(), store.create_conversation()
    foreign = ask(store, one)
    with pytest.raises(NoSuchRecord):
        store.add_user_message(other.id, "hello", foreign)
    with pytest.raises(NoSuchRecord):
        store.set_head(other.id, foreign)
    assert store.conversation(other.id) == other


def test_unknown_ids_are_refused(store: ConversationStore) -> None:
    nowhere = ConversationId(99)
    for call in (
        lambda: store.conversation(nowhere),
        lambda: store.rename(nowhere, "x"),
        lambda: store.delete(nowhere),
        lambda: store.add_user_message(nowhere, "x", None),
        lambda: store.message(MessageId(99)),
        lambda: store.withdraw(MessageId(99)),
    ):
        with pytest.raises(NoSuchRecord):
            call()


def test_settings_of_a_conversation_can_be_changed_and_taken_back(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    store.rename(conversation.id, "New name")
    store.set_model(conversation.id, "/models/b.gguf")
    settings = ChatSettings("Be brief.", {"temperature": 0.2}, "built-in chatml", {"enable_thinking": False})
    set_chat_settings(store, conversation.id, settings)
    changed = store.conversation(conversation.id)
    assert (changed.title, changed.model_path, changed.settings) == ("New name", "/models/b.gguf", settings)
    store.set_model(conversation.id, None)
    set_chat_settings(store, conversation.id, ChatSettings())
    assert store.conversation(conversation.id).model_path is None
    assert store.conversation(conversation.id).settings == ChatSettings()


def test_the_chat_one_wrote_in_last_is_listed_first_and_renaming_moves_nothing(
    store: ConversationStore,
) -> None:
    older, newer = store.create_conversation("older"), store.create_conversation("newer")
    store.rename(older.id, "renamed")
    store.set_draft(older.id, "draft")
    assert [conversation.id for conversation in store.conversations()] == [newer.id, older.id]
    ask(store, older)
    assert [conversation.id for conversation in store.conversations()] == [older.id, newer.id]


def test_a_deleted_chat_leaves_the_list_and_comes_back_whole(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    answer(store, conversation, ask(store, conversation), "because")
    kept, branch = store.conversation(conversation.id), store.branch(conversation.id)
    store.delete(conversation.id)
    assert store.conversations() == []
    assert store.conversation(conversation.id).deleted_at is not None
    store.undelete(conversation.id)
    assert store.conversations() == [kept]
    assert store.branch(conversation.id) == branch


def test_a_reply_that_streams_while_its_chat_is_deleted_is_there_after_undo(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = begin(store, conversation, ask(store, conversation))
    store.delete(conversation.id)
    store.finish_reply(reply_id, status=MessageStatus.COMPLETE, content="because", token_ids=IDS)
    store.undelete(conversation.id)
    assert store.branch(conversation.id)[-1].content == "because"


def test_purging_destroys_only_what_was_deleted_before(store: ConversationStore, database: Path) -> None:
    kept, late, gone = (store.create_conversation(title) for title in ("kept", "late", "gone"))
    secret = "the purged words"
    answer(store, gone, ask(store, gone, secret), secret)
    store.delete(gone.id)
    moment = datetime.now(UTC) + timedelta(milliseconds=1)
    store.delete(late.id)
    store._db.execute("UPDATE conversations SET deleted_at = deleted_at + 10000 WHERE id = ?", [late.id])
    assert store.purge_deleted(moment) == 1
    with pytest.raises(NoSuchRecord):
        store.conversation(gone.id)
    assert store.conversation(late.id).deleted_at is not None
    assert [conversation.id for conversation in store.conversations()] == [kept.id]
    assert store.integrity_check() == []
    on_disk = b"".join(file.read_bytes() for file in database.parent.iterdir())
    assert secret.encode() not in on_disk


def test_the_id_of_a_purged_chat_is_never_given_again(store: ConversationStore) -> None:
    gone = store.create_conversation()
    store.delete(gone.id)
    store.purge_deleted(datetime.now(UTC) + timedelta(seconds=1))
    assert store.create_conversation().id > gone.id


def test_every_chat_has_an_owner_that_no_other_ever_had(store: ConversationStore, tmp_path: Path) -> None:
    owners = [store.create_conversation().owner for _ in range(3)]
    with contextlib.closing(ConversationStore.open(tmp_path / "anew.sqlite3")) as anew:
        owners += [anew.create_conversation().owner for _ in range(3)]
    assert len(set(owners)) == 6
    assert min(map(len, owners)) == 32


def test_owners_of_purged_chats_wait_until_they_are_forgotten(store: ConversationStore) -> None:
    kept, gone, gone_too = (store.create_conversation() for _ in range(3))
    for conversation in (gone, gone_too):
        store.delete(conversation.id)
    assert store.owners_to_forget() == []
    store.purge_deleted(datetime.now(UTC) + timedelta(seconds=1))
    assert set(store.owners_to_forget()) == {gone.owner, gone_too.owner}
    store.owners_forgotten([gone.owner, "never heard of"])
    assert store.owners_to_forget() == [gone_too.owner]
    assert store.conversation(kept.id) == kept


def test_a_chat_is_private_from_its_beginning(store: ConversationStore) -> None:
    assert store.create_conversation(is_private=True).is_private
    assert not store.create_conversation().is_private


def test_a_reply_keeps_its_receipt(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    reply_id = begin(store, conversation, ask(store, conversation))
    miss = Miss(MissReason.TEXT_DIFFERS, 812, " dog", " cat")
    store.finish_reply(
        reply_id,
        status=MessageStatus.COMPLETE,
        content="because",
        token_ids=IDS,
        counts=COUNTS,
        timings=TIMINGS,
        bytes_read=28_000_000,
        miss=miss,
    )
    stored = store.message(reply_id)
    assert (stored.bytes_read, stored.miss, stored.counts, stored.timings) == (
        28_000_000,
        miss,
        COUNTS,
        TIMINGS,
    )


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("nul \0 inside", "nul \0 inside"),
        ("👩‍👩‍👧 難しい \U0010ffff", "👩‍👩‍👧 難しい \U0010ffff"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
        ("pair \ud83d\ude00", "pair 😀"),
    ],
)
def test_any_text_is_kept_in_full_unicode(store: ConversationStore, typed: str, kept: str) -> None:
    conversation = store.create_conversation(typed, typed)
    store.set_draft(conversation.id, typed)
    assert store.conversation(conversation.id).draft == kept
    assert store.conversation(conversation.id).title == kept
    answer(store, conversation, ask(store, conversation, typed), typed)
    assert [message.content for message in store.branch(conversation.id)] == [kept, kept]
