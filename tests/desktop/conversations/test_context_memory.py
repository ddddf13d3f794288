"""What of a chat the model is given: between messages on disk and indices of a request."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sqlite_utils import Database

from desktop.conversations import (
    ChatContext,
    ContextChoice,
    ConversationId,
    ConversationStore,
    MessageId,
    MessageStatus,
    StoredMessage,
    chat_context,
    context_rule,
    keep_fit,
    kept_fit,
    messages_for_engine,
    set_context_choice,
    set_message_pinned,
)
from desktop.conversations.engine_messages import sources_for_engine
from desktop.conversations.migrations import migrations
from inference import ContextFit, ContextPolicy, Message, SamplingParams


def branch_of(
    store: ConversationStore, *turns: tuple[str, str]
) -> tuple[ConversationId, list[StoredMessage]]:
    """A reply that is "" was stopped before its first word."""
    chat = store.create_conversation()
    head = None
    for question, text in turns:
        head = store.add_user_message(chat.id, question, head).id
        head = store.begin_reply(chat.id, head, "/m.gguf", SamplingParams()).id
        store.finish_reply(head, status=MessageStatus.CANCELLED, content=text, token_ids=())
    return chat.id, store.branch(chat.id)


def ids(branch: list[StoredMessage], *places: int) -> tuple[MessageId, ...]:
    return tuple(branch[place].id for place in places)


def test_every_message_for_the_engine_has_its_sources(store: ConversationStore) -> None:
    _, branch = branch_of(store, ("a", ""), ("b", "B"), ("c", "C"))
    sources = sources_for_engine(branch)
    assert [message.content for message in messages_for_engine(branch)] == ["a\n\nb", "B", "c", "C"]
    assert sources == [ids(branch, 0, 2), ids(branch, 3), ids(branch, 4), ids(branch, 5)]


def test_pins_and_the_former_cut_become_indices_behind_what_stands_in_front(store: ConversationStore) -> None:
    _, branch = branch_of(store, ("a", ""), ("b", "B"), ("c", "C"), ("d", "D"))
    messages = (
        Message("system", "Be brief"),
        *messages_for_engine(branch),
        Message("user", "typed"),
    )
    fit = kept_fit(ContextFit(900, 400, 512, 512, 1, cut=3, left_out=(2,)), branch, len(messages) - 1)
    assert (fit.first_seen, fit.left_out) == (branch[4].id, ids(branch, 3))
    assert (fit.has_system_prompt, fit.has_pinned) == (True, True)
    context = ChatContext(ContextChoice.ASK, frozenset(ids(branch, 2)), {branch[5].id: fit})
    rule = context_rule(context, branch, messages, num_drafts=1)
    assert (rule.policy, rule.pinned, rule.former_cut) == (ContextPolicy.REFUSE, (1,), 3)
    assert (
        context_rule(context, branch, messages, num_drafts=1, may_drop=True).policy
        is ContextPolicy.DROP_OLDEST
    )


def test_a_refused_reply_moves_no_cut(store: ConversationStore) -> None:
    _, branch = branch_of(store, ("a", "A"), ("b", "B"), ("c", ""))
    refused = kept_fit(ContextFit(900, 400, 512, 512, 1, cut=2, left_out=(0, 1), is_allowed=False), branch, 5)
    assert refused.first_seen == branch[2].id
    context = ChatContext(ContextChoice.ASK, frozenset(), {branch[5].id: refused})
    assert context_rule(context, branch, messages_for_engine(branch)).former_cut == 0


def test_choice_pins_and_fits_are_there_after_a_restart(database: Path) -> None:
    with contextlib.closing(ConversationStore.open(database)) as store:
        chat, branch = branch_of(store, ("a", "A"), ("b", "B"))
        other, _ = branch_of(store, ("x", "X"))
        assert chat_context(store, chat) == ChatContext()
        fit = kept_fit(ContextFit(900, 400, 512, 4096, 90, cut=2, left_out=(0, 1)), branch, 4)
        keep_fit(store, branch[3].id, fit)
        set_context_choice(store, chat, ContextChoice.DROP_OLDEST)
        set_message_pinned(store, branch[0].id, True)
        set_message_pinned(store, branch[1].id, True)
        set_message_pinned(store, branch[1].id, False)
    with contextlib.closing(ConversationStore.open(database)) as store:
        expected = ChatContext(ContextChoice.DROP_OLDEST, frozenset(ids(branch, 0)), {branch[3].id: fit})
        assert chat_context(store, chat) == expected
        assert chat_context(store, other) == ChatContext()


def test_a_chat_from_before_asks_and_pins_nothing(database: Path) -> None:
    with Database(database) as db:
        migrations.apply(db, stop_before="m005_full_context")
        db.execute("INSERT INTO conversations (title, created_at, updated_at, owner) VALUES ('a', 1, 1, 'o')")
        db.conn.commit()
    with contextlib.closing(ConversationStore.open(database)) as store:
        assert chat_context(store, ConversationId(1)) == ChatContext()
