"""What the next turn reads: new text, the template's glue, and a reply only from where its ids became others.

Reported as abetlen/llama-cpp-python#1369: the stored prefix ended at the prompt, so each reply was read again.
StoredChats.ask() compares all logits with those of a model without a store, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from inference.messages import Message, TokenId
from inference.reply_run import ReplyRun
from inference.sampling_params import SamplingParams
from tests.inference.stored_chats import StoredChats

Open = Callable[..., StoredChats]
ANY_PREFIX = ("mha", "gqa", "mqa")
LONG = SamplingParams(temperature=1.0, seed=7, max_tokens=200, ignore_eos=True)
# Letter by letter, where the tokenizer would write "hello" with one token.
LETTERS = 'root ::= "hello hello hello"'


def turn(run: ReplyRun, question: str, *, with_ids: bool = True) -> tuple[Message, Message]:
    """The reply as the next prompt has it, and what is asked then."""
    token_ids = tuple(run.generated_ids) if with_ids else None
    return Message("assistant", run.text, token_ids), Message("user", question)


def num_equal(first: Sequence[TokenId], second: Sequence[TokenId]) -> int:
    """The length of their common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def held_ids(run: ReplyRun) -> list[TokenId]:
    """Prompt and reply, less the reply's last token, which was sampled and never decoded."""
    assert run.prompt is not None
    return [*run.prompt.token_ids, *run.generated_ids[:-1]]


@pytest.mark.parametrize("kind", ["gqa", "sliding window", "hybrid"])
@pytest.mark.parametrize("restarts", [False, True])
def test_of_a_reply_of_200_tokens_the_next_turn_reads_none_but_the_last(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool
) -> None:
    chats = open_chats(tiny_paths[kind], n_ctx=2048)
    messages = [Message("user", "Tell me a long story.")]
    run = chats.ask(messages, sampling=LONG)
    for _ in range(2):
        assert len(run.generated_ids) == 200
        held = held_ids(run)
        if restarts:
            chats.restart()
        messages += turn(run, "Go on.")
        run = chats.ask(messages, sampling=LONG)
        assert run.prompt is not None
        assert run.prompt.token_ids[: len(held)] == held
        assert run.counts.prefilled_tokens == len(run.prompt.token_ids) - len(held)
        assert run.counts.restored_tokens == (len(held) if restarts else 0)


@pytest.mark.parametrize("kind", ANY_PREFIX)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_reply_that_is_tokenised_anew_is_reused_up_to_the_first_id_that_differs(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool
) -> None:
    chats = open_chats(tiny_paths[kind])
    merged = chats.loaded.model.vocab.tokenize("hello hello hello")
    letters = SamplingParams(
        temperature=0.0, max_tokens=40, grammar=LETTERS, logit_bias=tuple((token, -100.0) for token in merged)
    )
    asked = [Message("user", "Say it three times.")]
    run = chats.ask(asked, sampling=letters)
    assert run.text == "hello hello hello"
    if restarts:
        chats.restart()
    run_on = chats.ask([*asked, *turn(run, "Again.", with_ids=False)], sampling=letters)
    assert run_on.prompt is not None
    assert merged[0] not in run.generated_ids
    assert merged[0] in run_on.prompt.token_ids
    shared = num_equal(held_ids(run), run_on.prompt.token_ids)
    assert run.prompt is not None
    assert shared == len(run.prompt.token_ids)
    counts = run_on.counts
    assert (counts.restored_tokens if restarts else counts.reused_tokens) == shared
    assert counts.prefilled_tokens == len(run_on.prompt.token_ids) - shared


@pytest.mark.parametrize("restarts", [False, True])
def test_the_starter_models_own_words_tokenised_anew_cost_what_follows_the_first_id_that_differs(
    open_chats: Open, starter_path: Path, restarts: bool
) -> None:
    chats = open_chats(starter_path, n_ctx=512)
    asked = [Message("user", "Make up forty strange names.")]
    # Hot enough that words are put together from unlikely pieces.
    run = chats.ask(asked, sampling=replace(LONG, temperature=3.0, top_k=0, min_p=0.0, max_tokens=48))
    if restarts:
        chats.restart()
    run_on = chats.ask([*asked, *turn(run, "More.", with_ids=False)], max_tokens=1)
    assert run.prompt is not None
    assert run_on.prompt is not None
    held = held_ids(run)
    shared = num_equal(held, run_on.prompt.token_ids)
    assert len(run.prompt.token_ids) < shared < len(held)
    counts = run_on.counts
    assert (counts.restored_tokens if restarts else counts.reused_tokens) == shared
    assert counts.prefilled_tokens == len(run_on.prompt.token_ids) - shared
