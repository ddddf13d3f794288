"""What a loaded model tells of its templates. Case 19: where there is none that works, formats are named, not guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inference.builtin_templates import BUILTIN_TEMPLATES
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.request import EngineError, ErrorCode, GenerationRequest
from inference.template_info import TemplateUse
from inference.template_options import TemplateOption
from tests.tiny_models import CHATML, TinyModel, write_llama

Load = Callable[..., LoadedModel]
GO = "{{- range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}"
BUILTINS = tuple(f"built-in {name}" for name in BUILTIN_TEMPLATES)


def loaded_with(load: Load, path: Path, template: str | None) -> LoadedModel:
    return load(write_llama(path, TinyModel(chat_template=template)))


def test_a_model_with_a_template_of_its_own(load: Load, tmp_path: Path) -> None:
    thinking = CHATML + "{% if enable_thinking is false %}<think></think>{% endif %}"
    info = loaded_with(load, tmp_path / "m.gguf", thinking).info
    assert (info.template.source, info.template.reason) == ("model", None)
    assert info.template.choices == ("model", *BUILTINS)
    assert info.template.options_of(None) == (TemplateOption("enable_thinking", (True, False)),)
    assert info.template.options_of("built-in chatml") == ()
    assert info.has_chat_template


@pytest.mark.parametrize(("template", "reason"), [(None, "no chat template"), (GO, "cannot be read")])
def test_a_format_that_the_vocabulary_shows_stands_in_and_is_named(
    load: Load, tmp_path: Path, template: str | None, reason: str
) -> None:
    loaded = loaded_with(load, tmp_path / "m.gguf", template)
    assert loaded.info.template.source == "built-in chatml"
    assert reason in (loaded.info.template.reason or "")
    # The one that cannot be read is no choice.
    assert loaded.info.template.choices == BUILTINS
    request = GenerationRequest(loaded.info.config, messages=(Message("user", "hi"),))
    assert loaded.prompt_builder.build(request).template_use == TemplateUse("built-in chatml")


@pytest.mark.parametrize("template", [None, GO])
def test_where_nothing_shows_the_format_every_format_can_be_chosen(
    load: Load, tmp_path: Path, template: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.template_choice.fitting_builtin", lambda _has_token: None)
    loaded = loaded_with(load, tmp_path / "m.gguf", template)
    info = loaded.info.template
    assert (info.source, info.choices) == (None, BUILTINS)
    assert not loaded.info.has_chat_template
    messages = (Message("user", "hi"),)
    with pytest.raises(EngineError, match="choose a built-in template") as refused:
        loaded.prompt_builder.build(GenerationRequest(loaded.info.config, messages=messages))
    assert refused.value.code is ErrorCode.TEMPLATE_FAILED
    chosen = GenerationRequest(loaded.info.config, messages=messages, chat_template="built-in alpaca")
    assert loaded.prompt_builder.build(chosen).template_use == TemplateUse("built-in alpaca")


def test_what_had_to_be_done_to_a_chat_is_told(load: Load, tmp_path: Path) -> None:
    loaded = load(write_llama(tmp_path / "m.gguf"))
    messages = (Message("system", "Be brief."), Message("user", "hi"))
    request = GenerationRequest(loaded.info.config, messages=messages, chat_template="built-in gemma")
    use = loaded.prompt_builder.build(request).template_use
    assert use == TemplateUse("built-in gemma", ("system prompt in the first user message",))
