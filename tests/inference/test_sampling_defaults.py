"""Whose values are used: the request's, else the model's, else neutral ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import gguf
import pytest

from inference.llama.gguf_header import read_gguf_header
from inference.recommended_sampling import Recommendation, recommended_sampling
from inference.sampling_defaults import NEUTRAL, SamplingDefaults
from inference.sampling_params import SamplingParams
from tests.tiny_models import write_llama

# As Gemma 3's generation_config.json has it.
GEMMA = {"general.sampling.temp": 1.0, "general.sampling.top_k": 64, "general.sampling.top_p": 0.95}


def test_every_field_that_may_be_left_open_has_a_default() -> None:
    untouched = asdict(SamplingParams())
    still_open = {name for name, value in untouched.items() if value is None}
    assert still_open - asdict(NEUTRAL).keys() == {"seed", "max_tokens", "grammar", "json_schema"}
    assert asdict(NEUTRAL).keys() <= still_open


def test_without_a_recommendation_nothing_is_penalised_or_cut() -> None:
    # Reported as ollama PR #17679: a default repeat penalty of 1.1 distorts code and JSON.
    assert recommended_sampling({"general.architecture": "llama"}) == Recommendation(NEUTRAL)
    assert (NEUTRAL.repeat_penalty, NEUTRAL.top_k, NEUTRAL.top_p, NEUTRAL.mirostat) == (1.0, 0, 1.0, 0)
    assert NEUTRAL.xtc_probability == 0.0


def test_a_recommendation_is_taken_whole() -> None:
    assert recommended_sampling(GEMMA) == Recommendation(
        SamplingDefaults(temperature=1.0, top_k=64, top_p=0.95, min_p=0.0), ("temperature", "top_k", "top_p")
    )


def test_what_the_request_gives_wins_also_where_it_is_neutral() -> None:
    params = SamplingParams(temperature=0.0, top_k=0, seed=3, stop=("x",))
    completed = recommended_sampling(GEMMA).values.completed(params)
    assert (completed.temperature, completed.top_k, completed.top_p, completed.min_p) == (0.0, 0, 0.95, 0.0)
    assert (completed.seed, completed.stop) == (3, ("x",))
    assert NEUTRAL.completed(completed) == completed


def test_a_value_that_cannot_be_used_is_left_out_and_costs_only_itself() -> None:
    broken = GEMMA | {"general.sampling.top_p": 7.0, "general.sampling.mirostat": "two"}
    assert recommended_sampling(broken) == Recommendation(
        SamplingDefaults(temperature=1.0, top_k=64, top_p=1.0, min_p=0.0), ("temperature", "top_k")
    )


def test_recommendations_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_name = gguf.GGUFWriter.add_name

    def add_name_and_sampling(writer: gguf.GGUFWriter, name: str) -> None:
        add_name(writer, name)
        writer.add_sampling_temp(0.6)
        writer.add_sampling_top_k(20)
        writer.add_sampling_penalty_repeat(1.05)

    monkeypatch.setattr(gguf.GGUFWriter, "add_name", add_name_and_sampling)
    header = read_gguf_header(write_llama(tmp_path / "model.gguf"))
    recommended = recommended_sampling(header.metadata).values
    assert (recommended.top_k, recommended.min_p) == (20, 0.0)
    # GGUF keeps them with 24 bits.
    assert recommended.temperature == pytest.approx(0.6)
    assert recommended.repeat_penalty == pytest.approx(1.05)
