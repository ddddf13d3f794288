"""Which options a template has is told by its text; nothing of it is run for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.chat_template import options_of
from inference.template_options import OptionValue, template_options

TEMPLATES = Path(__file__).parent / "templates"
SWITCH = (True, False)


def options(source: str) -> dict[str, tuple[OptionValue, ...]] | None:
    found = options_of(source)
    return None if found is None else {option.name: option.values for option in found}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen-Qwen3-0.6B", {"enable_thinking": SWITCH}),
        ("deepseek-ai-DeepSeek-V3.1", {"enable_thinking": SWITCH}),
        ("ibm-granite-granite-3.3-2B-Instruct", {"thinking": SWITCH}),
        ("openai-gpt-oss-120b", {"reasoning_effort": ("low", "medium", "high")}),
        (
            "tencent-Hy3",
            {"preserved_thinking": SWITCH, "reasoning_effort": ("high", "low", "no_think")},
        ),
        ("meta-llama-Llama-3.2-3B-Instruct", {}),
    ],
)
def test_the_options_of_templates_that_popular_models_carry(
    name: str, expected: dict[str, tuple[OptionValue, ...]]
) -> None:
    found = options((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
    assert found == expected


def test_a_template_that_cannot_be_read_is_told_from_one_without_options() -> None:
    assert options("{{- /* Go */ -}}{{ .Prompt }}") is None
    assert options("{{ messages }}") == {}


def test_nothing_of_the_template_is_run() -> None:
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{{ thinking }}{% endfor %}{% endfor %}"
    assert options(endless) == {"thinking": SWITCH}


@given(
    st.dictionaries(
        st.sampled_from(["thinking", "reasoning_effort", "tools"]), st.lists(st.text(), max_size=20)
    )
)
def test_every_option_leaves_a_choice(variables: dict[str, list[str]]) -> None:
    for option in template_options(variables):
        assert option.name in variables
        assert 2 <= len(option.values) <= 8
