"""Chat templates for models whose file has none that works, and the tokens by which such a model is known.

Written for plain chats after the formats that the models' makers document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuiltinTemplate:
    """tokens: a vocabulary that has all of them as tokens was made for this format; empty: none tells."""

    jinja: str
    tokens: tuple[str, ...]


def _each(body: str, generation_prompt: str, begin: str = "") -> str:
    return (
        f"{begin}{{% for m in messages %}}{body}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {generation_prompt!r} }}}}{{% endif %}}"
    )


_REFUSE_SYSTEM = "{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
_CONTENT = "m['content'] | trim"

# The order counts: the first whose tokens are all there is taken.
BUILTIN_TEMPLATES = {
    "llama3": BuiltinTemplate(
        _each(
            "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
            + _CONTENT
            + " + '<|eot_id|>' }}",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "{{ bos_token }}",
        ),
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "gemma": BuiltinTemplate(
        _each(
            _REFUSE_SYSTEM
            + "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + "
            + _CONTENT
            + " + '<end_of_turn>\\n' }}",
            "<start_of_turn>model\n",
            "{{ bos_token }}",
        ),
        ("<start_of_turn>", "<end_of_turn>"),
    ),
    "phi4": BuiltinTemplate(
        _each(
            "{{ '<|im_start|>' + m['role'] + '<|im_sep|>' + m['content'] + '<|im_end|>' }}",
            "<|im_start|>assistant<|im_sep|>",
        ),
        ("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
    ),
    "chatml": BuiltinTemplate(
        _each(
            "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}",
            "<|im_start|>assistant\n",
        ),
        ("<|im_start|>", "<|im_end|>"),
    ),
    "phi3": BuiltinTemplate(
        _each("{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}", "<|assistant|>\n"),
        ("<|user|>", "<|assistant|>", "<|end|>"),
    ),
    "command-r": BuiltinTemplate(
        _each(
            "{{ '<|START_OF_TURN_TOKEN|>' + {'system': '<|SYSTEM_TOKEN|>', 'user': '<|USER_TOKEN|>', "
            "'assistant': '<|CHATBOT_TOKEN|>'}[m['role']] + " + _CONTENT + " + '<|END_OF_TURN_TOKEN|>' }}",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            "{{ bos_token }}",
        ),
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    ),
    "deepseek": BuiltinTemplate(
        _each(
            "{% if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
            "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'] + eos_token }}"
            "{% else %}{{ m['content'] }}{% endif %}",
            "<｜Assistant｜>",
            "{{ bos_token }}",
        ),
        ("<｜User｜>", "<｜Assistant｜>"),
    ),
    "granite": BuiltinTemplate(
        _each(
            "{{ '<|start_of_role|>' + m['role'] + '<|end_of_role|>' + m['content'] + '<|end_of_text|>\\n' }}",
            "<|start_of_role|>assistant<|end_of_role|>",
        ),
        ("<|start_of_role|>", "<|end_of_role|>"),
    ),
    "mistral": BuiltinTemplate(
        _each(
            _REFUSE_SYSTEM + "{{ '[INST] ' + m['content'] + '[/INST]' if m['role'] == 'user' "
            "else ' ' + " + "(" + _CONTENT + ")" + " + eos_token }}",
            "",
            "{{ bos_token }}",
        ),
        ("[INST]", "[/INST]"),
    ),
    "zephyr": BuiltinTemplate(
        _each("{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}", "<|assistant|>\n"),
        ("<|user|>", "<|assistant|>", "<|system|>"),
    ),
    "vicuna": BuiltinTemplate(
        _each(
            "{{ m['content'] + '\\n\\n' if m['role'] == 'system' else 'USER: ' + m['content'] + '\\n' "
            "if m['role'] == 'user' else 'ASSISTANT: ' + m['content'] + eos_token + '\\n' }}",
            "ASSISTANT:",
            "{{ bos_token }}",
        ),
        (),
    ),
    "alpaca": BuiltinTemplate(
        _each(
            "{{ m['content'] + '\\n\\n' if m['role'] == 'system' else '### Instruction:\\n' + m['content'] + '\\n\\n' "
            "if m['role'] == 'user' else '### Response:\\n' + m['content'] + eos_token + '\\n\\n' }}",
            "### Response:\n",
            "{{ bos_token }}",
        ),
        (),
    ),
}


def fitting_builtin(has_token: Callable[[str], bool]) -> str | None:
    """The name of the format that the vocabulary was made for; None: it shows none."""
    for name, builtin in BUILTIN_TEMPLATES.items():
        if builtin.tokens and all(map(has_token, builtin.tokens)):
            return name
    return None
