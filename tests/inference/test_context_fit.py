"""Which turns are left out of a chat that is longer than the context."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.context_fit import ContextSize, kept_messages, message_sizes, plan_fit, turn_starts
from inference.loaded_model import LoadedModel
from inference.messages import Message, Role
from inference.model_config import ModelConfig
from inference.request import ContextFit, ContextPolicy, ContextRule, GenerationRequest

DROP, REFUSE = ContextPolicy.DROP_OLDEST, ContextPolicy.REFUSE
ROLES: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}


def chat(roles: str) -> list[Message]:
    """E.g. "suaua"."""
    return [Message(ROLES[role], "x") for role in roles]


def plan(
    roles: str,
    sizes: list[int],
    n_ctx: int,
    *,
    policy: ContextPolicy = DROP,
    pinned: tuple[int, ...] = (),
    former_cut: int = 0,
    room: int = 0,
) -> ContextFit:
    rule = ContextRule(policy, pinned, former_cut)
    return plan_fit(chat(roles), sizes, sum(sizes), ContextSize(n_ctx, n_ctx, 1), rule, room)


def test_a_turn_is_what_the_user_asked_and_all_replies_to_it() -> None:
    assert turn_starts(chat("suauaa")) == [1, 3]
    assert turn_starts(chat("uuaua")) == [0, 3]
    assert turn_starts(chat("saua")) == [1, 2]


def test_a_chat_that_fits_is_sent_whole() -> None:
    fit = plan("suaua", [20] * 5, 100)
    assert (fit.left_out, fit.num_sent_tokens, fit.is_allowed) == ((), 100, True)


def test_the_oldest_turns_go_until_half_of_the_room_is_free() -> None:
    # 10 for the system prompt; of the 90 that are left, 45 may be turns.
    fit = plan("suauauau", [10, 15, 15, 15, 15, 15, 15, 15], 100)
    assert (fit.left_out, fit.cut, fit.num_sent_tokens) == ((1, 2, 3, 4), 5, 55)
    assert fit.is_allowed


def test_a_cut_stays_where_it_is_while_the_chat_fits_behind_it() -> None:
    sizes = [10, 15, 15, 15, 15, 15, 15, 15, 15, 15]
    fit = plan("suauauauau", sizes[:10], 100, former_cut=5)
    assert (fit.cut, fit.num_sent_tokens) == (5, 85)


def test_refusing_leaves_out_only_what_was_left_out_before_and_tells_what_dropping_would() -> None:
    sizes = [10, 15, 15, 15, 15, 15, 15, 15]
    assert plan("suauauau", sizes, 100, policy=REFUSE, former_cut=3).cut == 3
    refused = plan("suauauau", sizes, 100, policy=REFUSE)
    assert (refused.is_allowed, refused.left_out) == (False, (1, 2, 3, 4))
    assert refused.is_possible


def test_a_pinned_reply_stays_with_its_question() -> None:
    assert kept_messages(chat("suauau"), (2,)) == {0, 1, 2}
    fit = plan("suauauau", [10, 15, 15, 15, 15, 15, 15, 15], 100, pinned=(2,))
    assert fit.left_out == (3, 4, 5, 6)


def test_a_message_larger_than_the_context_is_never_beheaded() -> None:
    fit = plan("suau", [10, 5, 5, 200], 100)
    assert not fit.is_possible
    assert not fit.is_allowed
    assert fit.num_sent_tokens == 210


def test_room_for_the_reply_is_kept_where_turns_are_left_out() -> None:
    sizes = [10, 15, 15, 15, 15, 15, 15]
    assert plan("suauaua", sizes, 100, room=0).left_out == ()
    assert plan("suauaua", sizes, 100, room=1).left_out == (1, 2, 3, 4)


chats = st.lists(
    st.tuples(st.integers(1, 300), st.lists(st.integers(1, 300), min_size=1, max_size=2), st.booleans()),
    min_size=1,
)


@settings(max_examples=60)
@given(chats, st.integers(0, 400), st.integers(64, 2000), st.integers(0, 200), st.data())
def test_whatever_the_sizes(
    turns: list[tuple[int, list[int], bool]], system: int, n_ctx: int, room: int, data: st.DataObject
) -> None:
    roles, sizes = "s", [system]
    for question, replies, _ in turns:
        roles += "u" + "a" * len(replies)
        sizes += [question, *replies]
    starts = turn_starts(chat(roles))
    pinned = tuple(start for start, turn in zip(starts, turns, strict=True) if turn[2])
    policy = data.draw(st.sampled_from(list(ContextPolicy)))
    former = data.draw(st.sampled_from([0, *starts]))
    fit = plan(roles, sizes, n_ctx, policy=policy, pinned=pinned, former_cut=former, room=room)
    assert fit.num_prompt_tokens == sum(sizes)
    assert fit.num_sent_tokens == sum(sizes) - sum(sizes[index] for index in fit.left_out)
    # Neither the system prompt nor a pinned message nor anything of the last turn is ever left out.
    assert not {0, *pinned, *range(starts[-1], len(roles))} & set(fit.left_out)
    # Whole turns: all that is before the cut, and nothing behind it.
    assert fit.cut in (0, *starts[1:])
    kept = kept_messages(chat(roles), pinned)
    assert fit.left_out == tuple(index for index in range(fit.cut) if index not in kept)
    if fit.is_allowed:
        assert fit.num_sent_tokens <= n_ctx
        assert policy is DROP or fit.cut in (0, former)
    elif policy is DROP:
        deepest = sum(sizes) - sum(sizes[i] for i in range(starts[-1]) if i not in kept)
        assert deepest > n_ctx


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=30, max_size=80),
    st.integers(0, 100),
)
def test_a_growing_chat_is_cut_seldom_and_reads_each_token_once_behind_a_cut(
    turns: list[tuple[int, int]], system: int
) -> None:
    n_ctx, room, cut = 500, 60, 0
    sizes, roles = [system], "s"
    cuts: list[tuple[int, int]] = []
    for question, reply in turns:
        sizes, roles = [*sizes, question], roles + "u"
        fit = plan(roles, sizes, n_ctx, former_cut=cut, room=room)
        assert fit.is_allowed
        if fit.cut != cut:
            cuts.append((sum(sizes), fit.num_sent_tokens))
        assert fit.cut >= cut
        cut = fit.cut
        sizes, roles = [*sizes, reply], roles + "a"
    # From one cut to the next the chat grows by what the first one made free, but for the room and one turn.
    for (before, num_sent), (after, _) in pairwise(cuts):
        assert after - before > n_ctx - room - num_sent
        assert num_sent <= system + (n_ctx - system) // 2 + 60


def test_the_sizes_of_a_real_prompt_are_what_leaving_a_turn_out_saves(
    load: Callable[..., LoadedModel], tiny_paths: dict[str, Path]
) -> None:
    builder = load(tiny_paths["mqa"]).prompt_builder
    messages = tuple(
        Message(message.role, f"hello you {index} the win" * (index + 1))
        for index, message in enumerate(chat("suauau"))
    )

    def build(*kept: Message) -> int:
        return len(builder.build(GenerationRequest(ModelConfig("unused"), messages=kept)).token_ids)

    sizes = message_sizes(builder.build(GenerationRequest(ModelConfig("unused"), messages=messages)))
    assert build(*messages) - build(messages[0], *messages[3:]) == sizes[1] + sizes[2]
    assert build(*messages) - build(messages[0], messages[5]) == sum(sizes[1:5])
