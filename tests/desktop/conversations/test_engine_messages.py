"""Which messages of a branch the model is told."""

from __future__ import annotations

import pytest

from desktop.conversations import ConversationStore, MessageStatus, ids_to_keep, messages_for_engine
from inference import Message, SamplingParams, TokenId

IDS = (TokenId(5), TokenId(6))
Turn = tuple[str, MessageStatus | None, str]


def told(store: ConversationStore, turns: list[Turn]) -> tuple[Message, ...]:
    """turns: a user message, then how its reply ended (None: there is none) and the reply's text."""
    conversation = store.create_conversation()
    head = None
    for question, status, reply in turns:
        head = store.add_user_message(conversation.id, question, head).id
        if status is not None:
            head = store.begin_reply(conversation.id, head, "/m.gguf", SamplingParams()).id
            token_ids = IDS if reply else ()
            if status is MessageStatus.STREAMING:
                store.save_reply(head, reply, token_ids)
            else:
                store.finish_reply(head, status=status, content=reply, token_ids=token_ids)
    return messages_for_engine(store.branch(conversation.id))


def test_a_branch_is_told_in_order_with_the_ids_of_its_replies(store: ConversationStore) -> None:
    messages = told(store, [("a", MessageStatus.COMPLETE, "A"), ("b", None, "")])
    assert messages == (Message("user", "a"), Message("assistant", "A", IDS), Message("user", "b"))


@pytest.mark.parametrize("status", [MessageStatus.CANCELLED, MessageStatus.INTERRUPTED, MessageStatus.FAILED])
def test_a_reply_cut_short_is_told_as_far_as_it_was_read(
    store: ConversationStore, status: MessageStatus
) -> None:
    messages = told(store, [("a", status, "half"), ("b", None, "")])
    assert messages[1] == Message("assistant", "half", IDS)


@pytest.mark.parametrize("status", [MessageStatus.CANCELLED, MessageStatus.FAILED, MessageStatus.COMPLETE])
def test_messages_around_an_empty_reply_are_joined_so_that_roles_alternate(
    store: ConversationStore, status: MessageStatus
) -> None:
    assert told(store, [("a", status, ""), ("b", None, "")]) == (Message("user", "a\n\nb"),)


@pytest.mark.parametrize("written", ["", "some"])
def test_the_reply_being_asked_for_is_not_told(store: ConversationStore, written: str) -> None:
    assert told(store, [("a", MessageStatus.STREAMING, written)]) == (Message("user", "a"),)


def test_an_empty_branch_tells_nothing() -> None:
    assert messages_for_engine([]) == ()


def test_ids_that_the_engine_made_of_a_question_are_kept_with_it(store: ConversationStore) -> None:
    made = (TokenId(8), TokenId(9))
    conversation = store.create_conversation()
    question = store.add_user_message(conversation.id, "a", None)
    asked = store.branch(conversation.id)
    reply = store.begin_reply(conversation.id, question.id, "/m.gguf", SamplingParams())
    store.finish_reply(
        reply.id,
        status=MessageStatus.COMPLETE,
        content="A",
        token_ids=IDS,
        asked_ids=ids_to_keep(asked, (made,)),
    )
    assert messages_for_engine(store.branch(conversation.id)) == (
        Message("user", "a", made),
        Message("assistant", "A", IDS),
    )


def test_a_system_prompt_goes_before_everything_and_its_ids_belong_to_no_message(
    store: ConversationStore,
) -> None:
    conversation = store.create_conversation()
    question = store.add_user_message(conversation.id, "a", None)
    branch = store.branch(conversation.id)
    assert messages_for_engine(branch, "Be brief.") == (Message("system", "Be brief."), Message("user", "a"))
    assert messages_for_engine(branch, " \n") == (Message("user", "a"),)
    assert ids_to_keep(branch, ((TokenId(7),), (TokenId(8),)), "Be brief.") == {question.id: (TokenId(8),)}


def test_only_news_is_kept_and_never_in_place_of_what_was_sampled(store: ConversationStore) -> None:
    told(store, [("a", MessageStatus.COMPLETE, "A"), ("b", None, ""), ("c", None, "")])
    (conversation,) = store.conversations()
    branch = store.branch(conversation.id)
    # "b" and "c" are told as one message, which is nobody's own.
    assert ids_to_keep(branch, (None, (TokenId(7),), (TokenId(8),))) == {}
    assert ids_to_keep(branch, ((TokenId(7),), IDS, None)) == {branch[0].id: (TokenId(7),)}
