"""The sampler against definitions computed from the logits, over one decoded token of a tiny model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from inference.llama.grammar import SamplingRefused
from inference.llama.sampler import Sampler
from inference.llama.sequence import Sequence
from inference.messages import TokenId
from inference.sampling_params import SamplingParams

# All off, so that each test turns on what it is about.
PLAIN: dict[str, Any] = {"temperature": 1.0, "min_p": 0.0, "seed": 7}
GREEDY: dict[str, Any] = {"temperature": 0.0}
Logits = npt.NDArray[np.float32]


class Desk:
    """One decoded prompt, from whose logits tokens are drawn again and again."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.model = sequence.model
        self.prompt_ids = self.model.vocab.tokenize("hello the other you")
        sequence.decode(self.prompt_ids, want_logits=True)
        self.logits = sequence.logits()
        self.by_rank = [TokenId(int(token)) for token in np.argsort(-self.logits, kind="stable")]
        self.probabilities: npt.NDArray[np.float64] = np.exp(self.logits.astype(np.float64))
        self.probabilities /= self.probabilities.sum()

    def sampler(self, prompt_ids: list[TokenId] | None = None, **params: Any) -> Sampler:
        ids = self.prompt_ids if prompt_ids is None else prompt_ids
        return Sampler(self.model.llama, SamplingParams(**params), ids, self.model)

    def draw(self, num_tokens: int, prompt_ids: list[TokenId] | None = None, **params: Any) -> list[TokenId]:
        with closing(self.sampler(prompt_ids, **params)) as sampler:
            return [sampler.sample(self.sequence.context.handle) for _ in range(num_tokens)]

    def reply(self, max_tokens: int, **params: Any) -> tuple[str, bool]:
        """The text that is written after the prompt, and whether the model ended it."""
        self.sequence.truncate(len(self.prompt_ids) - 1)
        self.sequence.decode(self.prompt_ids[-1:], want_logits=True)
        text, vocab = b"", self.model.vocab
        with closing(self.sampler(**params)) as sampler:
            for _ in range(max_tokens):
                token = sampler.sample(self.sequence.context.handle)
                if vocab.ends_generation(token):
                    return text.decode("utf-8", "replace"), True
                text += vocab.piece(token)
                self.sequence.decode([token], want_logits=True)
        return text.decode("utf-8", "replace"), False


@pytest.fixture
def desk(new_sequence: Callable[..., Sequence], tiny_paths: dict[str, Path]) -> Desk:
    return Desk(new_sequence(tiny_paths["gqa"], n_ctx=512))


@pytest.mark.parametrize("bias", [-100.0, -0.5, 0.5, 100.0])
def test_temperature_0_heeds_biases(desk: Desk, bias: float) -> None:
    """The likeliest token is looked up without the chain where no bias can matter."""
    for biased in desk.by_rank[:3]:
        logits = desk.logits.astype(np.float64)
        logits[biased] += bias
        expected = TokenId(int(logits.argmax()))
        assert desk.draw(1, **GREEDY, logit_bias=((biased, bias),)) == [expected]


def test_temperature_0_is_the_likeliest_token_whatever_else_is_set(desk: Desk) -> None:
    others = [
        {},
        {"top_k": 5},
        {"xtc_probability": 1.0},
        {"mirostat": 1},
        {"mirostat": 2},
        {"typical_p": 0.1},
    ]
    assert {desk.draw(1, **GREEDY, **other)[0] for other in others} == {desk.by_rank[0]}


def test_a_recorded_seed_gives_the_reply_again(desk: Desk) -> None:
    with closing(desk.sampler(temperature=1.0)) as first, closing(desk.sampler(temperature=1.0)) as second:
        assert first.seed != second.seed
        drawn = [first.sample(desk.sequence.context.handle) for _ in range(30)]
    assert desk.draw(30, temperature=1.0, seed=first.seed) == drawn
    assert desk.draw(30, temperature=1.0, seed=second.seed) != drawn


def test_temperature_and_the_plain_distribution_are_the_models(desk: Desk) -> None:
    drawn = np.bincount(desk.draw(4000, **PLAIN), minlength=desk.logits.size) / 4000
    assert np.abs(drawn - desk.probabilities).max() < 0.04  # five standard deviations of 4,000 draws
    sharper = np.exp(2 * desk.logits.astype(np.float64))
    sharper /= sharper.sum()
    drawn = np.bincount(desk.draw(4000, **{**PLAIN, "temperature": 0.5}), minlength=desk.logits.size) / 4000
    assert np.abs(drawn - sharper).max() < 0.04


def nucleus(probabilities: npt.NDArray[np.float64], order: list[TokenId], p: float) -> set[TokenId]:
    """The first tokens in this order until their probabilities reach p."""
    count = int(np.searchsorted(np.cumsum(probabilities[order]), p)) + 1
    return set(order[:count])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"top_k": 3}, lambda desk: set(desk.by_rank[:3])),
        ({"top_p": 0.9}, lambda desk: nucleus(desk.probabilities, desk.by_rank, 0.9)),
        (
            {"min_p": 0.01},
            lambda desk: set(np.flatnonzero(desk.probabilities >= 0.01 * desk.probabilities.max())),
        ),
        ({"typical_p": 0.9}, lambda desk: typical(desk.probabilities, 0.9)),
        # All above the threshold but the least likely of them go.
        ({"xtc_probability": 1.0, "xtc_threshold": 0.02, "top_k": 40}, lambda desk: xtc(desk, 0.02, 40)),
    ],
    ids=str,
)
def test_each_cut_leaves_the_tokens_of_its_definition(
    desk: Desk, params: dict[str, Any], expected: Callable[[Desk], set[TokenId]]
) -> None:
    kept = expected(desk)
    assert 1 < len(kept) < desk.logits.size
    # At a high temperature, which comes after the cuts, every token that is left is drawn.
    assert set(desk.draw(100 * len(kept), **{**PLAIN, "temperature": 50.0, **params})) == kept


def typical(probabilities: npt.NDArray[np.float64], p: float) -> set[TokenId]:
    surprise = -np.log(probabilities)
    entropy = float((probabilities * surprise).sum())
    order = [TokenId(int(token)) for token in np.argsort(np.abs(surprise - entropy))]
    return nucleus(probabilities, order, p)


def xtc(desk: Desk, threshold: float, top_k: int) -> set[TokenId]:
    left = desk.by_rank[:top_k]
    probabilities = desk.probabilities[left] / desk.probabilities[left].sum()
    return set(left[int((probabilities >= threshold).sum()) - 1 :])


@pytest.mark.parametrize("penalty", [{"presence_penalty": 100.0}, {"frequency_penalty": 100.0}])
def test_a_penalty_reaches_back_over_the_last_tokens_and_no_further(
    desk: Desk, penalty: dict[str, float]
) -> None:
    drawn = desk.draw(8, [], **GREEDY, **penalty, penalty_last_n=3)
    assert drawn == desk.by_rank[:4] * 2
    # The prompt's tokens count too.
    assert desk.draw(1, desk.by_rank[:2], **GREEDY, **penalty, penalty_last_n=3) == [desk.by_rank[2]]
    assert desk.draw(1, desk.by_rank[:3], **GREEDY, **penalty, penalty_last_n=2) == [desk.by_rank[0]]
    assert desk.draw(1, desk.by_rank[:2], **GREEDY, **penalty, penalty_last_n=0) == [desk.by_rank[0]]


def test_the_repeat_penalty_divides_what_is_positive_and_multiplies_what_is_not(desk: Desk) -> None:
    penalised = np.where(desk.logits > 0, desk.logits / 2, desk.logits * 2)
    seen = desk.by_rank[:10]
    expected = desk.logits.copy()
    expected[seen] = penalised[seen]
    assert desk.draw(1, seen, **GREEDY, repeat_penalty=2.0) == [int(expected.argmax())]


def test_dry_stops_a_repetition_and_not_across_a_breaker(desk: Desk) -> None:
    vocab = desk.model.vocab
    a, b, c = (vocab.tokenize(letter)[0] for letter in "xyz")
    wanted: dict[str, Any] = {**GREEDY, "logit_bias": ((c, 50.0),), "dry_multiplier": 100.0}
    repeating = [a, b, c, a, b]
    assert desk.draw(1, repeating, **{**wanted, "dry_multiplier": 0.0}) == [c]
    assert desk.draw(1, repeating, **wanted) != [c]
    assert desk.draw(1, repeating, **wanted, dry_sequence_breakers=("y",)) == [c]
    assert desk.draw(1, repeating, **wanted, dry_allowed_length=3) == [c]
    assert desk.draw(1, [a, b, c, b, a], **wanted) == [c]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_keeps_the_surprise_near_its_target(desk: Desk, version: int) -> None:
    def surprise(tau: float) -> float:
        """Bits a token, in the end, by the model's own probabilities."""
        drawn = desk.draw(600, **PLAIN, mirostat=version, mirostat_tau=tau, mirostat_eta=0.05)
        return float(-np.log2(desk.probabilities[drawn[200:]]).mean())

    for tau in (1.0, 1.5, 2.0):
        assert surprise(tau) == pytest.approx(tau, abs=0.3)


def test_biases_ban_and_force_tokens(desk: Desk) -> None:
    first, second, last = desk.by_rank[0], desk.by_rank[1], desk.by_rank[-1]
    assert desk.draw(1, **GREEDY, logit_bias=((first, -100.0),)) == [second]
    assert desk.draw(1, **GREEDY, logit_bias=((first, -100.0), (last, 100.0))) == [last]
    with pytest.raises(SamplingRefused, match="logit_bias names token 99999; this model has"):
        desk.sampler(logit_bias=((99999, 1.0),))


def test_with_ignore_eos_the_model_cannot_end_its_turn(desk: Desk) -> None:
    eos = desk.model.vocab.eos
    assert eos is not None
    wanted: dict[str, Any] = {**GREEDY, "logit_bias": ((eos, 100.0),)}
    assert desk.draw(1, **wanted) == [eos]
    assert not desk.model.vocab.ends_generation(desk.draw(1, **wanted, ignore_eos=True)[0])


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        {**PLAIN, "temperature": 2.0},
        {**PLAIN, "typical_p": 0.5},
        {**PLAIN, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "xtc_probability": 0.5},
        {**PLAIN, "mirostat": 1},
        {**PLAIN, "mirostat": 2},
        {**PLAIN, "repeat_penalty": 1.5, "dry_multiplier": 1.0},
        {**GREEDY, "ignore_eos": True},
        {**PLAIN, "ignore_eos": True},
        {**GREEDY, "logit_bias": tuple((token, 100.0) for token in range(50))},
    ],
    ids=str,
)
def test_a_reply_follows_its_grammar_with_every_sampler_and_ends_where_it_ends(
    desk: Desk, params: dict[str, Any]
) -> None:
    text, has_ended = desk.reply(40, **params, grammar='root ::= ("yes" | "no") " "? [0-9äé]{3,5}')
    assert re.fullmatch("(yes|no) ?[0-9äé]{3,5}", text)
    assert has_ended


def test_a_grammar_changes_nothing_where_the_models_choice_fits(desk: Desk) -> None:
    free = desk.draw(20, **PLAIN, logit_bias=((desk.by_rank[0], 5.0),))
    params = SamplingParams(**PLAIN, logit_bias=((desk.by_rank[0], 5.0),), grammar="root ::= .*")
    fitting = [token for token in free if b"\0" not in desk.model.vocab.piece(token)]
    with closing(Sampler(desk.model.llama, params, desk.prompt_ids, desk.model)) as sampler:
        assert sampler.sample(desk.sequence.context.handle) == fitting[0] == free[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_by_schema_is_json_of_that_schema(desk: Desk, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "size": {"type": "integer"},
            "kind": {"enum": ["a\\b", 'c"d']},
        },
        "required": ["name", "size", "kind"],
    }
    text, has_ended = desk.reply(200, temperature=1.0, seed=seed, json_schema=json.dumps(schema))
    read = json.loads(text)
    assert has_ended
    assert read.keys() == {"name", "size", "kind"}
    assert isinstance(read["size"], int)
    assert read["kind"] in ("a\\b", 'c"d')


def test_a_continued_reply_goes_on_behind_what_was_written(desk: Desk) -> None:
    vocab, params = desk.model.vocab, SamplingParams(**GREEDY, grammar='root ::= "xyz"')
    written = vocab.tokenize("xy")
    prompt_ids = desk.prompt_ids + written
    with closing(Sampler(desk.model.llama, params, prompt_ids, desk.model, written)) as sampler:
        assert vocab.piece(sampler.sample(desk.sequence.context.handle)) == b"z"
    with pytest.raises(SamplingRefused, match="does not follow the grammar"):
        Sampler(desk.model.llama, params, prompt_ids, desk.model, vocab.tokenize("yx"))


def test_a_grammar_that_no_token_can_follow_is_an_error(desk: Desk) -> None:
    impossible = desk.sampler(**GREEDY, grammar='root ::= "\\UFFFFFFFF"')
    with closing(impossible), pytest.raises(SamplingRefused, match="no token of this model fits"):
        impossible.sample(desk.sequence.context.handle)


@pytest.mark.parametrize("grammar", [None, "root ::= [xyz]+"])
def test_logprobs_are_the_models_own_before_any_setting(desk: Desk, grammar: str | None) -> None:
    last = desk.by_rank[-1] if grammar is None else desk.model.vocab.tokenize("z")[0]
    wanted: dict[str, Any] = {**GREEDY, "logit_bias": ((last, 100.0),), "grammar": grammar}
    with closing(desk.sampler(**wanted, top_logprobs=3)) as sampler:
        token = sampler.sample(desk.sequence.context.handle)
        told = sampler.logprobs
    assert told is not None
    assert told.token_id == token == last
    assert told.logprob == pytest.approx(np.log(desk.probabilities[last]), abs=1e-4)
    assert [top for top, _ in told.top] == desk.by_rank[:3]
    assert [logprob for _, logprob in told.top] == pytest.approx(
        np.log(desk.probabilities[desk.by_rank[:3]]), abs=1e-4
    )
    assert (desk.sequence.logits() == desk.logits).all()


def test_logprobs_that_are_not_asked_for_are_not_computed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.llama.sampler.token_logprobs", None)
    with closing(desk.sampler(**GREEDY)) as sampler:
        sampler.sample(desk.sequence.context.handle)
        assert sampler.logprobs is None
