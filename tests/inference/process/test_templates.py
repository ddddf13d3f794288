"""Case 19 with GGUF files and a worker: no template, another language, needed functions, one that runs away, an unsafe one.

Reported as Jeffser/Alpaca#1032, lmstudio-ai/lmstudio-bug-tracker#535, nomic-ai/gpt4all#3309.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inference.builtin_templates import BUILTIN_TEMPLATES
from inference.events import RequestFailed, RequestFinished
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.process.client import EngineClient
from inference.process.worker_config import WorkerConfig
from inference.request import ErrorCode, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.tiny_models import TinyModel, write_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=2)
GO = "{{- /* by the maker */ -}}{{ range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}"
BUILTINS = tuple(f"built-in {name}" for name in BUILTIN_TEMPLATES)
HELPERS = (
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{% if m.get('name') %}{% continue %}{% endif %}"
    "<|im_start|>{{ m.get('role', 'nobody') }} {{ strftime_now('%Y') }} {{ [1, 'é'] | tojson }}<|im_end|>"
    "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
LOOPS = "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}"
UNSAFE = "{{ messages.__class__.__mro__[1].__subclasses__() }}"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EngineClient]:
    client = EngineClient(WorkerConfig(None, tmp_path / "worker.log"))
    yield client
    await client.close(5)


def model_with(folder: Path, template: str | None, *, is_of_known_format: bool = True) -> ModelConfig:
    path = write_llama(folder / "model.gguf", TinyModel(chat_template=template))
    if not is_of_known_format:
        path.write_bytes(path.read_bytes().replace(b"<|im_start|>", b"<|zz_start|>"))
    return ModelConfig(str(path), n_ctx=512, n_threads=1)


def chat(model: ModelConfig, template: str | None = None) -> GenerationRequest:
    return GenerationRequest(
        model,
        messages=(Message("user", "hello"),),
        chat_template=template,
        template_time=0.0,
        sampling=GREEDY,
    )


async def end_of(client: EngineClient, request: GenerationRequest) -> RequestFinished | RequestFailed:
    events = [event async for event in client.generate(request)]
    end = events[-1]
    assert isinstance(end, RequestFinished | RequestFailed)
    return end


async def assert_goes_on_with_another(client: EngineClient, model: ModelConfig) -> None:
    pid = client.worker_pid
    end = await end_of(client, chat(model, "built-in chatml"))
    assert isinstance(end, RequestFinished)
    assert end.template is not None
    assert end.template.source == "built-in chatml"
    assert client.worker_pid == pid


@pytest.mark.parametrize(("template", "reason"), [(None, "no chat template"), (GO, "cannot be read")])
async def test_without_a_template_the_formats_are_told_and_no_raw_text_is_read(
    client: EngineClient, tmp_path: Path, template: str | None, reason: str
) -> None:
    model = model_with(tmp_path, template, is_of_known_format=False)
    info = await client.load_model(model)
    assert (info.template.source, info.template.choices) == (None, BUILTINS)
    assert reason in (info.template.reason or "")
    refused = await end_of(client, chat(model))
    assert isinstance(refused, RequestFailed)
    assert refused.code is ErrorCode.TEMPLATE_FAILED
    assert "choose a built-in template" in refused.message
    await assert_goes_on_with_another(client, model)


@pytest.mark.parametrize("template", [None, GO])
async def test_a_format_that_the_vocabulary_shows_is_told_with_the_reply(
    client: EngineClient, tmp_path: Path, template: str | None
) -> None:
    model = model_with(tmp_path, template)
    assert (await client.load_model(model)).template.source == "built-in chatml"
    end = await end_of(client, chat(model))
    assert isinstance(end, RequestFinished)
    assert end.template is not None
    assert end.template.source == "built-in chatml"


async def test_what_templates_call_is_there(client: EngineClient, tmp_path: Path) -> None:
    model = model_with(tmp_path, HELPERS)
    end = await end_of(client, chat(model))
    assert isinstance(end, RequestFinished)
    assert end.template is not None
    assert end.template.source == "model"
    text = '<|im_start|>user 1970 [1, "é"]<|im_end|>hello<|im_end|><|im_start|>'
    same = await end_of(client, GenerationRequest(model, prompt=text, sampling=GREEDY))
    assert isinstance(same, RequestFinished)
    # Token for token what the template wrote.
    assert same.counts.num_prompt_tokens == end.counts.num_prompt_tokens
    assert same.counts.reused_tokens == same.counts.num_prompt_tokens - 1


@pytest.mark.parametrize(("template", "reason"), [(LOOPS, "did not finish"), (UNSAFE, "failed on this chat")])
async def test_a_template_that_runs_away_or_reaches_out_is_stopped(
    client: EngineClient, tmp_path: Path, template: str, reason: str
) -> None:
    model = model_with(tmp_path, template)
    failed = await end_of(client, chat(model))
    assert isinstance(failed, RequestFailed)
    assert failed.code is ErrorCode.TEMPLATE_FAILED
    assert reason in failed.message
    assert "choose another template" in failed.message
    await assert_goes_on_with_another(client, model)
