"""A message that was refused before anything was read goes back to where it was typed."""

from __future__ import annotations

import pytest

from desktop.conversations import ConversationStore, MessageStatus, NoSuchRecord
from tests.desktop.conversations.turns import answer, ask, begin


def test_a_refused_message_goes_back_into_the_draft_before_what_was_typed_since(
    store: ConversationStore,
) -> None:
    conversation = store.create_conversation()
    message_id = ask(store, conversation, "far too long")
    reply_id = begin(store, conversation, message_id)
    store.set_draft(conversation.id, "next idea")
    after = store.withdraw(message_id)
    assert (after.draft, after.head_id, after.title) == ("far too long\n\nnext idea", None, "")
    assert store.branch(conversation.id) == []
    for gone in (message_id, reply_id):
        with pytest.raises(NoSuchRecord):
            store.message(gone)


def test_withdrawing_a_later_message_shows_the_chat_as_it_was(store: ConversationStore) -> None:
    conversation = store.create_conversation("Physics")
    first = answer(store, conversation, ask(store, conversation), "because")
    reply_id = begin(store, conversation, second := ask(store, conversation, "and?"))
    store.finish_reply(reply_id, status=MessageStatus.FAILED, content="", token_ids=None, error="too long")
    after = store.withdraw(second)
    assert (after.head_id, after.draft, after.title) == (first, "and?", "Physics")


def test_an_answered_message_cannot_be_withdrawn(store: ConversationStore) -> None:
    conversation = store.create_conversation()
    question = ask(store, conversation)
    reply_id = answer(store, conversation, question, "because")
    for message_id in (question, reply_id):
        with pytest.raises(ValueError, match="withdrawn"):
            store.withdraw(message_id)
    assert [message.id for message in store.branch(conversation.id)] == [question, reply_id]
