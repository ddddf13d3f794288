"""The chat templates that popular models carry write exactly what Hugging Face's renderer writes, or are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
from transformers.utils import chat_template_utils

from inference.chat_template import ChatTemplate
from inference.messages import Message, Role
from inference.request import EngineError

TEMPLATES = sorted((Path(__file__).parent / "templates").glob("*.jinja"))
NOW = datetime(2026, 3, 1, 12, 30)
Chat = list[tuple[Role, str]]


@dataclass(frozen=True)
class Case:
    """mended: the chat in the shapes that a template may need it in."""

    chat: Chat
    mended: list[Chat] = field(default_factory=list)
    options: dict[str, bool] = field(default_factory=dict)


CASES = {
    "several turns": Case([("user", 'Hi <there> & "you"'), ("assistant", "Hello!"), ("user", "é🙂 {{ x }}")]),
    "system": Case([("system", "Be brief."), ("user", "Hi")], [[("user", "Be brief.\n\nHi")]]),
    "system and several turns": Case(
        [("system", "Be brief."), ("user", "Hi"), ("assistant", "Yes"), ("user", "Go on")],
        [[("user", "Be brief.\n\nHi"), ("assistant", "Yes"), ("user", "Go on")]],
    ),
    "earlier reasoning": Case(
        [("user", "Hi"), ("assistant", "<think>\nhm\n</think>\n\nYes"), ("user", "Go on")],
        options={"enable_thinking": True, "thinking": True},
    ),
    "no thinking": Case(
        [("user", "Hi"), ("assistant", "Yes"), ("user", "Go on")],
        options={"enable_thinking": False, "thinking": False},
    ),
    "two in a row": Case([("user", "Hi"), ("user", "there")], [[("user", "Hi\n\nthere")]]),
    "white space": Case(
        [("system", "Be brief."), ("user", " Hi\n"), ("assistant", " Yes \n"), ("user", "\n Go")],
        [[("user", "Be brief.\n\n Hi\n"), ("assistant", " Yes \n"), ("user", "\n Go")]],
    ),
}
# They ask for what a plain chat has not; transformers refuses them just so.
REFUSED = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "NoneType",
    "ai-sage-GigaChat-20B-A3B-instruct": "additional_special_tokens",
}


class _FixedTime(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return NOW


@pytest.fixture(autouse=True)
def _fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", _FixedTime)


def reference(source: str, chat: Chat, options: dict[str, bool]) -> str | None:
    """None: refused."""
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [[{"role": role, "content": content} for role, content in chat]],
            chat_template=source,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
            **options,
        )
    except Exception:
        return None
    return str(texts[0])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_writes_what_transformers_writes_with_it_or_is_refused(path: Path, case: Case) -> None:
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source, "<s>", "</s>")
    messages = [Message(role, content) for role, content in case.chat]
    if path.stem in REFUSED:
        assert reference(source, case.chat, case.options) is None
        with pytest.raises(EngineError, match=REFUSED[path.stem]):
            template.write(messages, keep_bos=True, options=case.options)
        return
    written = template.write(messages, keep_bos=True, options=case.options, now=NOW.timestamp())
    text = "".join(segment.text for segment in written.segments)
    if written.mends:
        # Only where the template refuses the chat as it is, or leaves something of it out.
        unmended = reference(source, case.chat, case.options)
        assert unmended is None or case.chat[0][1] not in unmended
        assert text in [reference(source, chat, case.options) for chat in case.mended]
    else:
        assert text == reference(source, case.chat, case.options)
    # Whatever the template does around and to them, every message's text is told from the template's.
    assert not written.lost
    found = {segment.message_index: segment.text.strip() for segment in written.segments}
    for index, (_, content) in enumerate(case.chat):
        assert found[index] == content.strip() or content.endswith("</think>\n\n" + found[index])


def test_there_are_many_families() -> None:
    assert len(TEMPLATES) - len(REFUSED) >= 50
