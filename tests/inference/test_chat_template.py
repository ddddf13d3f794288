"""Chats written with templates that trim, refuse, rewrite; and where each message lands in the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.chat_template import ChatTemplate, ChatText
from inference.messages import Message
from inference.request import EngineError, ErrorCode
from inference.template_process import TemplateProcess

PLAIN = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
# As Qwen3 and DeepSeek do: of earlier replies only what follows the reasoning.
STRIPS_REASONING = PLAIN.replace(
    "m['content']",
    "m['content'].split('</think>')[-1].lstrip('\\n') if m.role == 'assistant' else m['content']",
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + PLAIN
)
CHAT = [Message("user", "one"), Message("assistant", "two"), Message("user", "three")]


def write(source: str, chat: list[Message], **options: bool | int | float | str) -> ChatText:
    return ChatTemplate(source, "", "").write(chat, keep_bos=True, options=options)


def text_of(written: ChatText) -> str:
    return "".join(segment.text for segment in written.segments)


def contents_of(written: ChatText) -> list[tuple[int, str]]:
    return [(s.message_index, s.text) for s in written.segments if s.message_index is not None]


def test_segments_join_to_what_the_template_wrote() -> None:
    assert text_of(write(PLAIN, CHAT)) == "[user]one[/][assistant]two[/][user]three[/][assistant]"


def test_each_message_is_a_segment_of_its_own() -> None:
    assert contents_of(write(PLAIN, CHAT)) == [(0, "one"), (1, "two"), (2, "three")]


def test_a_trimmed_content_is_found_trimmed_and_those_behind_it_as_they_are() -> None:
    trimming = PLAIN.replace("m['content']", "m['content'] | trim")
    written = write(trimming, [Message("user", " one\n"), *CHAT[1:]])
    assert contents_of(written) == [(0, "one"), (1, "two"), (2, "three")]
    assert text_of(written) == "[user]one[/][assistant]two[/][user]three[/][assistant]"


def test_white_space_that_the_template_keeps_stays_with_its_content() -> None:
    messages = [
        Message("user", " one\n"),
        Message("assistant", "<think>\na\n</think>\n\ntwo"),
        Message("user", "\n"),
    ]
    assert contents_of(write(PLAIN, messages))[:2] == [(0, " one\n"), (1, messages[1].content)]
    assert contents_of(write(STRIPS_REASONING, messages)) == [(0, " one\n"), (1, "two")]


def test_an_altered_content_is_still_told_from_template_text() -> None:
    upper = PLAIN.replace(
        "m['content']", "m['content'] | upper if m['role'] == 'assistant' else m['content']"
    )
    assert contents_of(write(upper, CHAT)) == [(0, "one"), (1, "TWO"), (2, "three")]


def test_a_template_that_looks_into_contents_writes_what_it_would_without_marks() -> None:
    looking = PLAIN.replace(
        "m['content']", "m['content'][1:] if m['content'].startswith('/') else m['content']"
    )
    written = write(looking, [Message("system", "/brief"), *CHAT])
    assert text_of(written) == "[system]brief[/][user]one[/][assistant]two[/][user]three[/][assistant]"
    assert contents_of(written) == [(0, "brief"), (1, "one"), (2, "two"), (3, "three")]


def test_contents_that_are_rewritten_in_many_places_are_found_where_they_still_read_the_same() -> None:
    reversing = PLAIN.replace(
        "m['content']", "m['content'] if m['content'] == 'three' else m['content'][::-1]"
    )
    written = write(reversing, CHAT)
    assert text_of(written) == "[user]eno[/][assistant]owt[/][user]three[/][assistant]"
    assert contents_of(written) == [(2, "three")]
    assert written.lost == {0, 1}


def test_contents_that_repeat_or_look_like_template_text_are_told_apart() -> None:
    messages = [
        Message("user", "[/]"),
        Message("assistant", "[user]"),
        Message("user", "[/][user]"),
        Message("assistant", ""),
        Message("user", "x"),
    ]
    written = write(PLAIN, messages)
    assert contents_of(written) == [(0, "[/]"), (1, "[user]"), (2, "[/][user]"), (4, "x")]
    assert (
        text_of(written)
        == "[user][/][/][assistant][user][/][user][/][user][/][assistant][/][user]x[/][assistant]"
    )


contents = st.lists(
    st.sampled_from(
        ["a", " ", "\n", "[/]", "[user]", "<think>", "</think>", "\ue0f0", "\ue0f1", "\ue0f2", "é"]
    ),
    max_size=6,
).map("".join)


@given(st.lists(contents, min_size=1, max_size=6), st.sampled_from([PLAIN, STRIPS_REASONING]))
def test_whatever_is_in_the_messages_their_text_is_found_and_nothing_else(
    texts: list[str], source: str
) -> None:
    messages = [Message("user" if n % 2 == 0 else "assistant", text) for n, text in enumerate(texts)]
    written = write(source, messages)
    assert not written.lost
    glue = "".join(segment.text for segment in written.segments if segment.message_index is None)
    # White space and tags may count as template text, a bracket never.
    kept = "".join(f"[{message.role}][/]" for message in messages) + "[assistant]"
    for left_outside in ("<think>", "</think>", " ", "\n"):
        glue = glue.replace(left_outside, "")
    assert glue == kept


def test_helpers_that_templates_expect_are_there() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m | tojson }}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ messages[0].get('name', '-') }}"
        "{% generation %}{% if tools is none and documents is none %}g{% endif %}{% endgeneration %}"
    )
    assert text_of(write(source, [Message("user", "<é>")])) == '{"role": "user", "content": "<é>"}4-g'


def test_the_date_is_the_one_that_the_request_tells() -> None:
    written = ChatTemplate("{{ strftime_now('%Y') }}" + PLAIN, "", "").write(
        CHAT, keep_bos=True, now=86400.0 * 365
    )
    assert text_of(written).startswith("1971[")


def test_options_reach_the_template_and_its_generation_prompt() -> None:
    source = PLAIN + "{% if add_generation_prompt and not enable_thinking %}<think></think>{% endif %}"
    assert write(source, CHAT, enable_thinking=True).generation_prompt == "[assistant]"
    assert write(source, CHAT, enable_thinking=False).generation_prompt == "[assistant]<think></think>"


def test_options_cannot_take_the_place_of_the_chat() -> None:
    assert text_of(write(PLAIN, CHAT, messages="none", add_generation_prompt=False)) == text_of(
        write(PLAIN, CHAT)
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{- /* Go syntax */ -}}", "cannot be read"),
        ("{{ ''.__class__.__mro__ }}{{ messages.__class__.__subclasses__() }}", "SecurityError"),
        ("{{ raise_exception('only user first') }}", "only user first"),
        ("{% for i in range(100000000) %}x{% endfor %}", "OverflowError"),
        ("{{ messages[99].content }}", "UndefinedError"),
        ("{% set x = 'x' * 10 ** 10 %}", "memory"),
    ],
)
def test_a_template_that_fails_is_refused_with_the_reason(source: str, reason: str) -> None:
    with pytest.raises(EngineError, match=f"{reason}.*: choose another template") as refused:
        write(source, CHAT)
    assert refused.value.code == ErrorCode.TEMPLATE_FAILED


@pytest.mark.parametrize(
    "source",
    [NO_SYSTEM, PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")],
)
def test_a_system_prompt_that_is_refused_or_left_out_goes_into_the_first_user_message(source: str) -> None:
    written = write(source, [Message("system", "s"), *CHAT])
    assert text_of(written) == "[user]s\n\none[/][assistant]two[/][user]three[/][assistant]"
    assert contents_of(written) == [(0, "s"), (1, "one"), (2, "two"), (3, "three")]
    assert written.mends == ("system prompt in the first user message",)


def test_messages_of_one_role_are_joined_where_roles_must_alternate() -> None:
    written = write(ALTERNATING, [Message("user", "zero"), *CHAT])
    assert text_of(written) == "[user]zero\n\none[/][assistant]two[/][user]three[/][assistant]"
    assert written.mends == ("messages of one role joined",)


def test_both_mends_are_made_where_both_are_needed() -> None:
    written = write(ALTERNATING, [Message("system", "s"), Message("user", "zero"), *CHAT])
    assert text_of(written) == "[user]s\n\nzero\n\none[/][assistant]two[/][user]three[/][assistant]"
    assert contents_of(written) == [(0, "s"), (1, "zero"), (2, "one"), (3, "two"), (4, "three")]


def test_a_chat_that_the_template_takes_is_left_as_it_is() -> None:
    assert not write(PLAIN, [Message("system", "s"), Message("user", "zero"), *CHAT]).mends


def test_a_chat_that_nothing_mends_is_refused_with_the_first_reason() -> None:
    with pytest.raises(EngineError, match="roles must alternate"):
        write(ALTERNATING, [Message("assistant", "hello"), *CHAT])


def test_a_bos_from_the_variable_is_taken_away_where_the_model_wants_none() -> None:
    template = ChatTemplate("{{ bos_token }}" + PLAIN, "<s>", "</s>")
    assert text_of(template.write(CHAT[:1], keep_bos=False)).startswith("[user]")
    assert text_of(template.write(CHAT[:1], keep_bos=True)).startswith("<s>[user]")


def test_a_turn_marker_that_happens_to_be_the_bos_token_stays() -> None:
    # SmolLM2: its BOS is <|im_start|>, with which every turn begins.
    template = ChatTemplate("{{ bos_token and '' }}" + PLAIN.replace("[{{", "<s>{{"), "<s>", "</s>")
    assert text_of(template.write(CHAT[:1], keep_bos=False)).startswith("<s>user]")


def test_a_chat_that_a_template_ran_away_with_is_not_given_to_it_again_at_once() -> None:
    """Each try keeps everyone's model for as long as a template may take."""
    endless = (
        PLAIN + "{% if messages | length > 2 %}"
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    )
    process = TemplateProcess(render_timeout_s=0.3)
    template = ChatTemplate(endless, "", "", process)
    assert text_of(template.write(CHAT[:1], keep_bos=True)) == "[user]one[/][assistant]"
    with pytest.raises(EngineError, match="did not finish"):
        template.write(CHAT, keep_bos=True)
    process.close()
    assert process.pid is None
    with pytest.raises(EngineError, match="did not finish"):
        template.write([*CHAT, *CHAT], keep_bos=True)
    assert process.pid is None  # it was not even started
    # What is shorter it may well manage.
    assert text_of(template.write(CHAT[:1], keep_bos=True)) == "[user]one[/][assistant]"
    process.close()
