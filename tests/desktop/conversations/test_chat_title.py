"""What of a model's answer is a title."""

from __future__ import annotations

import pytest

from desktop.conversations import ConversationId, ConversationStore
from desktop.conversations.chat_title import title_of_reply
from desktop.conversations.model_titles import set_model_title, wants_title
from tests.desktop.conversations.turns import ask


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("How Rainbows Form", "How Rainbows Form"),
        ('\n **"How Rainbows Form"**\n\nI hope this helps!', "How Rainbows Form"),
        ("Title: Rainbows.", "Rainbows"),
        ("The conversation title is: 'Rainbows'", "Rainbows"),
        ("# 「虹の仕組み」", "虹の仕組み"),
        ("Names of cats", "Names of cats"),
        ("Titleless works", "Titleless works"),
        ("What is a rainbow?", "What is a rainbow?"),
        ("", None),
        ("...", None),
        ("\u202eevil\u202c", "evil"),
        ("a b " * 5, None),
        ("word" * 20, None),
    ],
)
def test_a_title_is_one_short_line_without_decoration(said: str, title: str | None) -> None:
    assert title_of_reply(said) == title


def test_only_a_chat_that_nobody_has_named_wants_a_title(store: ConversationStore) -> None:
    plain, named, given = (store.create_conversation(title) for title in ("", "", "Mine"))
    for chat in (plain, named, given):
        ask(store, chat, "Hello there")
    store.rename(named.id, "Hello there")
    assert [wants_title(store, chat.id) for chat in (plain, named, given)] == [True, False, False]
    assert not wants_title(store, ConversationId(99))
    assert [set_model_title(store, chat.id, "Greeting") for chat in (plain, named)] == [True, False]
    assert not wants_title(store, plain.id)
    assert [store.conversation(chat.id).title for chat in (plain, named)] == ["Greeting", "Hello there"]
