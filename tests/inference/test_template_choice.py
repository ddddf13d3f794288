"""Which template a model is used with, and why; the built-in ones write what the formats' makers document."""

import pytest

from inference.builtin_templates import BUILTIN_TEMPLATES, fitting_builtin
from inference.chat_template import ChatTemplate, check_template
from inference.messages import Message
from inference.request import EngineError
from inference.template_choice import TemplateChoice, choices, choose

JINJA = "{{ messages[0].content }}"
GO = "{{- /* Go */ -}}{{ .Prompt }}"
CHATML_TOKENS = {"<|im_start|>", "<|im_end|>"}


def chosen(
    templates: dict[str, str], override: str | None = None, tokens: frozenset[str] = frozenset()
) -> TemplateChoice:
    return choose(templates, override, tokens.__contains__, check_template)


def test_a_model_is_used_with_its_own_template() -> None:
    assert chosen({"default": JINJA, "rag": "other"}) == TemplateChoice("model", JINJA)


def test_a_variant_stands_in_for_a_template_that_cannot_be_read() -> None:
    choice = chosen({"default": GO, "tool_use": "tools", "short": JINJA})
    assert (choice.source, choice.jinja) == ("variant short", JINJA)
    assert choice.reason is not None
    assert "cannot be read" in choice.reason


def test_a_built_in_one_stands_in_where_the_vocabulary_shows_its_format() -> None:
    choice = chosen({"default": GO}, tokens=frozenset(CHATML_TOKENS))
    assert choice.source == "built-in chatml"
    assert choice.reason is not None


@pytest.mark.parametrize(
    ("templates", "reason"), [({}, "no chat template"), ({"default": GO}, "cannot be read")]
)
def test_where_nothing_shows_the_format_nothing_is_guessed(templates: dict[str, str], reason: str) -> None:
    with pytest.raises(EngineError, match=f"{reason}.*choose a built-in template"):
        chosen(templates)


@pytest.mark.parametrize("source", ["model", "variant rag", "built-in gemma"])
def test_whatever_can_be_chosen_is_used_when_it_is(source: str) -> None:
    templates = {"default": JINJA, "rag": "rag"}
    choice = chosen(templates, source)
    assert choice in choices(templates)
    assert choice.source == source


def test_a_text_is_an_override() -> None:
    assert chosen({"default": JINJA}, "variant {{ x }}") == TemplateChoice("override", "variant {{ x }}")


@pytest.mark.parametrize("source", ["model", "variant rag", "built-in nothing"])
def test_a_choice_that_is_gone_is_refused(source: str) -> None:
    with pytest.raises(EngineError, match=source):
        chosen({}, source)


@pytest.mark.parametrize("name", BUILTIN_TEMPLATES)
def test_every_built_in_template_is_known_by_its_tokens_and_takes_every_chat(name: str) -> None:
    builtin = BUILTIN_TEMPLATES[name]
    if builtin.tokens:
        assert fitting_builtin({*builtin.tokens}.__contains__) == name
    messages = [Message("system", "S"), Message("user", "U"), Message("assistant", "A"), Message("user", "V")]
    written = ChatTemplate(builtin.jinja, "<s>", "</s>").write(messages, keep_bos=True)
    assert [s.text for s in written.segments if s.message_index is not None] == ["S", "U", "A", "V"]


EXPECTED = {
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "U<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n",
    "mistral": "<s>[INST] S\n\nU[/INST]",
    "phi3": "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n",
    "deepseek": "<s>S<｜User｜>U<｜Assistant｜>",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_built_in_templates_write_the_documented_format(name: str) -> None:
    template = ChatTemplate(BUILTIN_TEMPLATES[name].jinja, "<s>", "</s>")
    written = template.write([Message("system", "S"), Message("user", "U")], keep_bos=True)
    assert "".join(segment.text for segment in written.segments) == EXPECTED[name]
