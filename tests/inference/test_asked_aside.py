"""What is asked beside a chat, as its title: it uses what is in memory and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inference.events import RequestFailed
from tests.inference.test_scheduler import Chats, open_chats  # noqa: F401 - a fixture

Open = Callable[..., Chats]


def test_it_uses_the_chat_in_memory_and_stores_nothing(open_chats: Open) -> None:  # noqa: F811
    chats = open_chats()
    chats.submit("q" * 100, 5)
    chats.finish()
    chats.store.flush(30)
    stored = chats.store.num_blocks
    aside = chats.submit("q" * 100 + "name it", 5, is_aside=True)
    chats.finish()
    assert chats.finished(aside).counts.reused_tokens == 100
    chats.submit("x" * 100, 5)
    chats.finish()
    assert [s.num_tokens > 0 for s in chats.loaded.context.sequences].count(True) == 1
    chats.store.flush(30)
    again = chats.submit("q" * 100 + "name it", 5)
    chats.finish()
    assert stored > 0
    assert chats.finished(again).counts.restored_tokens <= 100


def test_without_a_store_it_leaves_no_more_than_the_chat_had(open_chats: Open) -> None:  # noqa: F811
    chats = open_chats(n_seq=2)
    chats.scheduler._store = None
    for _ in range(3):
        # A token that was sampled last is in no cell.
        chats.submit("q" * 100, 1)
        chats.finish()
        elsewhere = chats.submit("x" * 100, 5, is_aside=True)
        chats.finish()
        aside = chats.submit("q" * 100 + "name it", 5, is_aside=True)
        chats.finish()
        assert chats.finished(elsewhere).counts.reused_tokens == 0
        assert chats.finished(aside).counts.reused_tokens == 100
    assert not [event for event in chats.events if isinstance(event, RequestFailed)]
    assert [s.num_tokens > 0 for s in chats.loaded.context.sequences].count(True) == 1


@pytest.mark.parametrize("n_ctx", [256, 2048])
def test_it_takes_no_place_from_a_private_chat(open_chats: Open, n_ctx: int) -> None:  # noqa: F811
    chats = open_chats(n_ctx=n_ctx)
    chats.submit("q" * 150, 5, is_private=True)
    chats.finish()
    aside = chats.submit("x" * 100, 20, is_aside=True)
    chats.finish()
    failed = [event for event in chats.events if isinstance(event, RequestFailed)]
    assert [event.request_id for event in failed] == ([aside] if n_ctx == 256 else [])
    again = chats.submit("q" * 150 + "b", 5, is_private=True)
    chats.finish()
    assert chats.finished(again).counts.reused_tokens == 150
