import pytest

from inference.chat_template import ChatTemplate, Segment
from inference.messages import Message
from inference.request import EngineError, ErrorCode

PLAIN = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
CHAT = [Message("user", "one"), Message("assistant", "two"), Message("user", "three")]


def text_of(segments: list[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def test_segments_join_to_what_the_template_wrote() -> None:
    segments = ChatTemplate(PLAIN, "", "").segments(CHAT, keep_bos=True)
    assert text_of(segments) == "[user]one[/][assistant]two[/][user]three[/][assistant]"


def test_each_message_is_a_segment_of_its_own() -> None:
    segments = ChatTemplate(PLAIN, "", "").segments(CHAT, keep_bos=True)
    assert [(s.text, s.message_index) for s in segments if s.message_index is not None] == [
        ("one", 0),
        ("two", 1),
        ("three", 2),
    ]


def test_a_trimmed_content_is_found_trimmed_and_those_behind_it_as_they_are() -> None:
    template = ChatTemplate(PLAIN.replace("m['content']", "m['content'] | trim"), "", "")
    segments = template.segments([Message("user", " one\n"), *CHAT[1:]], keep_bos=True)
    assert [s.text for s in segments if s.message_index is not None] == ["one", "two", "three"]


def test_where_a_template_changes_contents_the_rest_is_one_segment() -> None:
    source = PLAIN.replace(
        "m['content']", "m['content'] | upper if m['role'] == 'assistant' else m['content']"
    )
    segments = ChatTemplate(source, "", "").segments(CHAT, keep_bos=True)
    assert text_of(segments) == "[user]one[/][assistant]TWO[/][user]three[/][assistant]"
    assert [s.message_index for s in segments if s.message_index is not None] == [0]


def test_contents_that_repeat_or_look_like_template_text_are_told_apart() -> None:
    messages = [
        Message("user", "[/]"),
        Message("assistant", "[user]"),
        Message("user", "[/][user]"),
        Message("assistant", ""),
    ]
    segments = ChatTemplate(PLAIN, "", "").segments([*messages, Message("user", "x")], keep_bos=True)
    assert [s.text for s in segments if s.message_index is not None] == ["[/]", "[user]", "[/][user]", "x"]
    assert (
        text_of(segments)
        == "[user][/][/][assistant][user][/][user][/][user][/][assistant][/][user]x[/][assistant]"
    )


def test_a_content_with_our_own_mark_in_it_is_still_written_out() -> None:
    segments = ChatTemplate(PLAIN, "", "").segments([Message("user", "\ue0f00\ue0f1")], keep_bos=True)
    assert text_of(segments) == "[user]\ue0f00\ue0f1[/][assistant]"


def test_helpers_that_templates_expect_are_there() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m | tojson }}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ messages[0].get('name', '-') }}"
    )
    text = text_of(
        ChatTemplate(source, "", "").segments([Message("system", "s"), Message("user", "<é>")], keep_bos=True)
    )
    assert text == '{"role": "user", "content": "<é>"}4-'


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{- /* Go syntax */ -}}", "cannot be read"),
        ("{{ ''.__class__.__mro__ }}{{ messages.__class__.__subclasses__() }}", "SecurityError"),
        ("{{ raise_exception('only user first') }}", "only user first"),
        ("{% for i in range(100000000) %}x{% endfor %}", "OverflowError"),
        ("{{ messages[99].content }}", "UndefinedError"),
    ],
)
def test_a_template_that_fails_is_refused_with_the_reason(source: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason) as refused:
        ChatTemplate(source, "", "").segments(CHAT, keep_bos=True)
    assert refused.value.code == ErrorCode.TEMPLATE_FAILED


def test_a_bos_from_the_variable_is_taken_away_where_the_model_wants_none() -> None:
    template = ChatTemplate("{{ bos_token }}" + PLAIN, "<s>", "</s>")
    assert text_of(template.segments(CHAT[:1], keep_bos=False)).startswith("[user]")
    assert text_of(template.segments(CHAT[:1], keep_bos=True)).startswith("<s>[user]")


def test_a_turn_marker_that_happens_to_be_the_bos_token_stays() -> None:
    # SmolLM2: its BOS is <|im_start|>, with which every turn begins.
    template = ChatTemplate("{{ bos_token and '' }}" + PLAIN.replace("[{{", "<s>{{"), "<s>", "</s>")
    assert text_of(template.segments(CHAT[:1], keep_bos=False)).startswith("<s>user]")
