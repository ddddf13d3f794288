"""Full-text search over all chats, as one types."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlite_utils import Database

from desktop.conversations import ConversationStore, MessageStatus, resume_reply
from desktop.conversations.migrations import migrations
from desktop.conversations.search import MAX_HITS, remove_deleted_words, search_chats
from inference import Reasoning
from tests.desktop.conversations.turns import SAMPLING, answer, ask, begin


def found(store: ConversationStore, typed: str) -> list[str]:
    """What of each hit is marked."""
    snippets = [hit.snippet for hit in search_chats(store, typed).hits]
    return [" ".join(shown.text[start:end] for start, end in shown.marks) for shown in snippets]


def message_hits(store: ConversationStore, typed: str) -> list[int | None]:
    return [hit.message_id for hit in search_chats(store, typed).hits if hit.message_id is not None]


@pytest.mark.parametrize(
    ("typed", "marked"),
    [
        ("vol", "Vol"),
        ("VOLCANO", "volcano"),
        ("eruption", "éruption"),
        ("eruptión", "éruption"),
        ("volcano erup", "volcano érup"),
        ("erup volcano", "volcano érup"),
        ('"the volcano"', "The volcano"),
        ('"volcan"', ""),
        ("max_tok", "max_tok"),
        ("tokens=12", "tokens=12"),
        ("東", "東"),
        ("都", "都"),
        ("京都", "京都"),
        ("東京都", "東京都"),
        ("京大", ""),
        ("글", "글"),
        ("カメ", "カメ"),
        ("かめ", ""),
        ("Рек", "Рек"),
        ("nothing", ""),
    ],
)
def test_words_are_found_by_their_beginning_and_unspaced_text_by_any_part(
    store: ConversationStore, typed: str, marked: str
) -> None:
    text = "The volcano’s éruption: max_tokens=128. 東京都 大 한글 カメラ РЕКА"
    chat = store.create_conversation("T")
    ask(store, chat, text)
    expected = marked.lower().split()
    assert [marks.lower().split() for marks in found(store, typed)] == ([expected] if marked else [])


def test_titles_questions_replies_and_thoughts_are_searched(store: ConversationStore) -> None:
    chat = store.create_conversation("Zebra stripes")
    question = ask(store, chat, "Are zebras black?")
    reply = begin(store, chat, question)
    store.finish_reply(
        reply,
        status=MessageStatus.COMPLETE,
        content="Both.",
        token_ids=None,
        reasoning=Reasoning("A zebra is asked about", 5, 1.0, False),
    )
    titled, thought, asked = search_chats(store, "zebra").hits
    assert (titled.message_id, thought.message_id, asked.message_id) == (None, reply, question)
    assert thought.snippet.text == "A zebra is asked about"
    assert {hit.title for hit in (titled, thought, asked)} == {"Zebra stripes"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text() | st.text(alphabet='a*"()-^:{}+東 \0ANDORNEAR'))
def test_no_text_is_a_syntax_error(store: ConversationStore, typed: str) -> None:
    search_chats(store, typed)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(alphabet="aéßıŁ東京カｶ゙한 \n-9"), st.data())
def test_any_word_of_a_message_finds_it(store: ConversationStore, text: str, data: st.DataObject) -> None:
    words = [word for word in text.split() if any(letter.isalnum() for letter in word)]
    if words:
        chat = store.create_conversation("T")
        message = ask(store, chat, text)
        assert message in message_hits(store, data.draw(st.sampled_from(words)))
        store.delete(chat.id)
        store.purge_deleted(datetime.now(UTC) + timedelta(1))


def test_whole_words_come_first_and_then_the_newest(store: ConversationStore) -> None:
    chat = store.create_conversation("T")
    old, longer, new = (ask(store, chat, text) for text in ("a cat", "category", "the cat"))
    assert message_hits(store, "cat") == [new, old, longer]


def test_more_hits_than_are_shown_are_said_to_be_there(store: ConversationStore) -> None:
    chat = store.create_conversation("T")
    for _ in range(MAX_HITS + 1):
        ask(store, chat, "again")
    assert search_chats(store, "again").is_cut
    assert len(search_chats(store, "again").hits) == MAX_HITS


def test_a_reply_is_found_when_it_has_ended(store: ConversationStore) -> None:
    chat = store.create_conversation("T")
    reply = begin(store, chat, ask(store, chat, "Why?"))
    store.save_reply(reply, "because of Rayleigh", None)
    assert found(store, "rayleigh") == []
    store.finish_reply(reply, status=MessageStatus.COMPLETE, content="So: Rayleigh", token_ids=None)
    assert found(store, "rayleigh") == ["Rayleigh"]
    resume_reply(store, reply, "/models/a.gguf", SAMPLING)
    assert found(store, "rayleigh") == []
    store.finish_reply(reply, status=MessageStatus.CANCELLED, content="So: Rayleigh, Mie", token_ids=None)
    assert found(store, "mie rayleigh") == ["Rayleigh Mie"]


def test_a_reply_that_a_crash_cut_off_is_found_after_the_next_start(database: Path) -> None:
    with contextlib.closing(ConversationStore.open(database)) as store:
        chat = store.create_conversation("T")
        reply = begin(store, chat, ask(store, chat, "Why?"))
        store.save_reply(reply, "because of Rayleigh", None)
    with contextlib.closing(ConversationStore.open(database)) as store:
        store.mark_interrupted()
        assert message_hits(store, "rayleigh") == [reply]


def test_renamed_withdrawn_and_deleted_text_is_no_longer_found(store: ConversationStore) -> None:
    chat = store.create_conversation("Alpha")
    question = ask(store, chat, "Beta gamma")
    store.rename(chat.id, "Delta")
    assert (found(store, "alpha"), found(store, "delta")) == ([], ["Delta"])
    store.delete(chat.id)
    assert (found(store, "delta"), found(store, "beta")) == ([], [])
    store.undelete(chat.id)
    assert found(store, "beta") == ["Beta"]
    store.withdraw(question)
    assert found(store, "beta") == []


def test_chats_from_before_there_was_a_search_are_found(database: Path) -> None:
    with Database(database) as db:
        migrations.apply(db, stop_before="m008_search")
        db.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Ondes', 1, 1)")
        for status, text in (("complete", "été"), ("streaming", "été indien")):
            db.execute(
                "INSERT INTO messages (conversation_id, role, status, created_at, updated_at, content) "
                "VALUES (1, 'assistant', ?, 1, 1, ?)",
                [status, text],
            )
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        assert (found(store, "onde"), found(store, "ete")) == (["Onde"], ["été"])
        store.mark_interrupted()
        assert len(found(store, "ete")) == 2


def everything_on_disk(database: Path) -> bytes:
    """All files of the data folder, in lower case as the index keeps its words."""
    return b"".join(path.read_bytes() for path in sorted(database.parent.iterdir())).lower()


def test_words_of_a_purged_chat_are_in_no_file(database: Path) -> None:
    with contextlib.closing(ConversationStore.open(database)) as store:
        kept = store.create_conversation("Kept")
        for number in range(300):
            ask(store, kept, f"keepsake number {number} " + "and more " * 20)
        gone = store.create_conversation("Codewordtitle")
        answer(store, gone, ask(store, gone, "A Codewordquestion"), "the codewordanswer 秘密語")
        store.set_draft(gone.id, "codeworddraft")
        for number in range(300):
            ask(store, kept, f"later number {number} " + "and more " * 20)
        store.rename(gone.id, "Another title")
        store.delete(gone.id)
        assert store.purge_deleted(datetime.now(UTC) + timedelta(1)) == 1
        assert b"codeword" in everything_on_disk(database)
        steps = 1
        while remove_deleted_words(store):
            steps += 1
        left = everything_on_disk(database)
        assert b"codeword" not in left
        assert "秘密".encode() not in left
        assert b"keepsake" in left
        assert len(message_hits(store, "keepsake number 299")) == 1
        assert not remove_deleted_words(store)
    with contextlib.closing(ConversationStore.open(database)) as store:
        assert store.integrity_check() == []
        assert len(search_chats(store, "keepsake").hits) == MAX_HITS


def test_removing_deleted_words_goes_on_after_the_next_start(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("desktop.conversations.search._MERGED_PAGES", 1)
    with contextlib.closing(ConversationStore.open(database)) as store:
        for title in ("Kept", "Gone"):
            chat = store.create_conversation(title)
            for number in range(50):
                ask(store, chat, f"{title}words number{number} " + "and more " * 20)
        store.delete(chat.id)
        store.purge_deleted(datetime.now(UTC) + timedelta(1))
        assert remove_deleted_words(store)
        assert b"gonewords" in everything_on_disk(database)
    with contextlib.closing(ConversationStore.open(database)) as store:
        while remove_deleted_words(store):
            pass
        assert b"gonewords" not in everything_on_disk(database)
