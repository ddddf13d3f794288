"""Which characters of a reply are shown, and when: a grammar makes a model with random weights write a given text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inference import reply_run
from inference.events import TokenDelta
from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.lone_run import LoneRun
from tests.tiny_models import TinyModel, write_llama

Load = Callable[..., LoadedModel]
ZWJ_EMOJI = "👩‍👩‍👧‍👦"


def write(loaded: LoadedModel, text: str, **sampling: object) -> tuple[ReplyRun, list[TokenDelta]]:
    """A reply of this text, and everything that was told of it."""
    grammar = f'root ::= "{text}"'
    params = SamplingParams(temperature=0.0, grammar=grammar, **sampling)  # type: ignore[arg-type]
    lone = LoneRun(GenerationRequest(ModelConfig("unused"), prompt="x", sampling=params), loaded, None)
    return lone.run(), [event for event in lone.events if isinstance(event, TokenDelta)]


@pytest.fixture(autouse=True)
def every_token_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_run, "_DELTA_INTERVAL_S", 0.0)


@pytest.mark.parametrize("text", [ZWJ_EMOJI * 3, "a歪b", "🙂" * 20, "naïve 🏳️‍🌈!"])
def test_each_character_is_told_with_its_last_token_and_none_in_halves(
    load: Load, tiny_paths: dict[str, Path], text: str
) -> None:
    # Reported as abetlen/llama-cpp-python#57, #372; kherud/java-llama.cpp#3.
    loaded = load(tiny_paths["gqa"])
    run, deltas = write(loaded, text)
    assert run.text == text
    shown, ids = "", []
    for delta in deltas:
        shown, ids = shown + delta.text, ids + list(delta.token_ids)
        written = b"".join(loaded.model.vocab.piece(token) for token in ids)
        assert shown == written.decode(errors="ignore")
    # Every byte outside ASCII is a token of its own.
    assert len(deltas) == len(ids) > len(text)
    assert shown == text


def test_a_turn_that_does_not_end_with_eos_ends_the_reply_and_its_marker_is_not_shown(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reported as LostRuins/koboldcpp#812, apple/coreai-models#25.
    loaded = load(write_llama(tmp_path / "m.gguf", TinyModel(eos_token="<|endoftext|>")))
    vocab, sampled = loaded.model.vocab, []
    (marker,) = vocab.tokenize("<|im_end|>")
    assert vocab.eos is not None
    assert vocab.eos != marker
    sample = Sampler.sample

    def noted(sampler: Sampler, context_handle: int, index: int, *, use_grammar: bool) -> TokenId:
        sampled.append(sample(sampler, context_handle, index, use_grammar=use_grammar))
        return sampled[-1]

    monkeypatch.setattr(Sampler, "sample", noted)
    run, deltas = write(loaded, "hello", logit_bias=((marker, 50.0), (vocab.eos, -100.0)))
    assert sampled[-1] == marker
    assert run.finish_reason == FinishReason.STOP
    assert "".join(delta.text for delta in deltas) == run.text == "hello"
    assert marker not in run.generated_ids


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Well. <|im_end|> And on", "Well. "),
        ("Well, <|im_portant|> things", "Well, <|im_portant|> things"),
        ("Well, <|im_", "Well, <|im_"),
        ("<|<|im_end|>", "<|"),
    ],
)
def test_of_a_stop_string_over_many_tokens_nothing_is_shown_and_of_a_look_alike_everything(
    load: Load, tiny_paths: dict[str, Path], text: str, shown: str
) -> None:
    # Reported as LostRuins/koboldcpp#812, apple/coreai-models#25. Typed out: each letter is a token.
    stop = "<|im_end|>"
    run, deltas = write(load(tiny_paths["gqa"]), text, stop=(stop,))
    assert (run.text, run.finish_reason) == (shown, FinishReason.STOP)
    so_far = ""
    for delta in deltas:
        so_far += delta.text
        # Not even briefly: what might still become the stop string was held back.
        assert shown.startswith(so_far)
    assert so_far == shown
