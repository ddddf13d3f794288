"""The sampler of whole replies: what an untouched request uses, and what a stored prefix changes of it (nothing)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.llama.sampler import Sampler
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.lone_run import run_alone
from tests.inference.stored_chats import StoredChats, let_restoring_pay, let_restoring_pay_in

Load = Callable[..., LoadedModel]
ROOT = Path(__file__).resolve().parents[2]


def sampler_names(sampler: Sampler) -> list[str]:
    """Of the native chain."""
    llama, chain = sampler._llama, sampler._chain
    return [
        llama.llama_sampler_name(llama.llama_sampler_chain_get(chain, number)).decode()
        for number in range(llama.llama_sampler_chain_n(chain))
    ]


def test_an_untouched_request_is_sampled_without_any_penalty(load: Load, starter_path: Path) -> None:
    # Reported as ollama/ollama PR #17679, abetlen/llama-cpp-python PR #1590.
    loaded = load(starter_path)
    asked = Message("user", "Write 30 rows of JSON.")
    request = GenerationRequest(
        ModelConfig("unused"), messages=(asked,), sampling=SamplingParams(max_tokens=1)
    )
    run = ReplyRun(request, loaded, None, arrived=0.0)
    run.read()
    assert run._sampler is not None
    assert sampler_names(run._sampler) == ["min-p", "temp", "dist"]
    assert run._sampler._params.repeat_penalty == 1.0
    run.close()
    penalised = ReplyRun(
        replace(request, sampling=SamplingParams(repeat_penalty=1.1)), loaded, None, arrived=0.0
    )
    penalised.read()
    assert penalised._sampler is not None
    assert "penalties" in sampler_names(penalised._sampler)
    penalised.close()


@pytest.fixture
def chats(tiny_paths: dict[str, Path], tmp_path: Path) -> Iterator[StoredChats]:
    chats = StoredChats(tiny_paths["gqa"], tmp_path / "kv")
    yield chats
    chats.close()


@pytest.mark.parametrize("penalty", [{"repeat_penalty": 2.0}, {"dry_multiplier": 5.0}], ids=str)
def test_penalties_see_a_restored_prompt_as_they_see_one_that_was_read(
    chats: StoredChats, monkeypatch: pytest.MonkeyPatch, penalty: dict[str, float]
) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True, penalty_last_n=64, **penalty)  # type: ignore[arg-type]
    plain = replace(sampling, repeat_penalty=None, dry_multiplier=0.0)
    prompt = "bdgkqbdgkqbdgkq" * 8

    def ask(params: SamplingParams) -> ReplyRun:
        let_restoring_pay(chats.folder, chats.fingerprint)
        chats.reference.begin_request()
        run = run_alone(
            GenerationRequest(ModelConfig("unused"), prompt=prompt, sampling=params),
            chats.loaded,
            chats.store,
        )
        assert chats.store.flush(30)
        return run

    # What the model repeats of itself is penalised last, so that its end is in the prompt.
    prompt += ask(plain).text
    cold = ask(sampling)
    chats.restart()
    restored = ask(sampling)
    assert restored.counts.prefilled_tokens == 1
    assert restored.generated_ids == cold.generated_ids
    # The window covers the prompt: without it the reply is another one.
    create = Sampler.__init__

    def forget_the_prompt(
        self: Sampler, llama: Any, params: Any, prompt_ids: Any, model: Any, reply_ids: Any
    ) -> None:
        create(self, llama, params, [], model, reply_ids)

    monkeypatch.setattr(Sampler, "__init__", forget_the_prompt)
    assert ask(sampling).generated_ids != cold.generated_ids


def test_fresh_processes_draw_other_seeds_and_a_stored_state_brings_none_back(
    tiny_paths: dict[str, Path], tmp_path: Path
) -> None:
    # Reported as abetlen/llama-cpp-python#1809, #386; deepset-ai/haystack-core-integrations#1269.
    arguments = [str(tiny_paths["gqa"]), "--prompt", "b" * 100, "--kv-store", str(tmp_path / "kv")]
    options = ["--context", "256", "--threads", "1", "--max-tokens", "12", "--temperature", "1", "--json"]
    environment = {**os.environ, "EVERWARM_DATA_DIR": str(tmp_path / "data")}

    def start(*more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "inference", "generate", *arguments, *options, *more]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def reports(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
        return [json.loads(output) for output in outputs]

    (first,) = reports([start("--seed", "7")])
    (folder,) = {path.parent for path in (tmp_path / "kv").rglob("*.kv")}
    let_restoring_pay_in(tmp_path / "kv", folder.name)
    fixed = reports([start("--seed", "7") for _ in range(2)])
    drawn = reports([start() for _ in range(5)])
    assert {report["restored_tokens"] for report in (*fixed, *drawn)} == {99}
    assert [report["seed"] for report in fixed] == [first["seed"]] * 2 == [7, 7]
    assert [report["token_ids"] for report in fixed] == [first["token_ids"]] * 2
    assert len({report["seed"] for report in drawn} - {7}) == 5
    assert len({tuple(report["token_ids"]) for report in drawn}) >= 4
