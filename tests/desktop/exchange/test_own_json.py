"""Nothing of a chat is lost on the way out and in again."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from desktop.conversations import ConversationStore, MessageStatus
from desktop.conversations.context_memory import KeptFit
from desktop.conversations.rows import encode_sampling, encode_token_ids
from desktop.conversations.whole_chats import TreeMessage, WholeChat, add_whole_chat, chat_columns
from desktop.exchange import everwarm_json
from inference import MissReason, SamplingParams, TokenId
from tests.desktop.exchange.imports import export_all, import_into, new_store, whole, write_json

DOCUMENT = Path(__file__).parents[3] / "docs" / "exchange.md"

# What SQLite's texts can hold: anything but single surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
times = st.integers(0, 4_000_000_000_000_000)
seconds = st.floats(0, 1e6)
samplings = st.builds(
    SamplingParams,
    temperature=st.none() | st.floats(0, 2),
    seed=st.none() | st.integers(0, 2**32 - 2),
    stop=st.lists(texts.filter(lambda t: 0 < len(t) < 20), max_size=2).map(tuple),
)
ids = st.lists(st.integers(-(2**31), 2**31 - 1).map(TokenId), max_size=6)
COUNTS = ("num_prompt_tokens", "reused_tokens", "restored_tokens", "prefilled_tokens")
TIMINGS = ("queued_s", "load_s", "tokenize_s", "restore_s", "prefill_s", "ttft_s", "decode_s", "e2e_s")


@st.composite
def message_columns(draw: st.DrawFn) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "role": draw(st.sampled_from(["system", "user", "assistant"])),
        "status": draw(st.sampled_from([s.value for s in MessageStatus if s is not MessageStatus.STREAMING])),
        "content": draw(texts),
        "created_at": draw(times),
        "updated_at": draw(times),
    }
    if draw(st.booleans()):
        columns |= {
            "error": draw(texts),
            "model_path": draw(texts),
            "sampling": encode_sampling(draw(samplings)),
            "seed": draw(st.integers(0, 2**32)),
            "finish_reason": draw(st.sampled_from(["stop", "length", "context"])),
            **{name: draw(st.integers(0, 2**40)) for name in COUNTS},
            **{name: draw(seconds) for name in TIMINGS},
            "num_generation_tokens": 7,
            "decode_tokens_per_second": draw(seconds),
            "bytes_read": draw(st.integers(0, 2**50)),
            "miss_reason": draw(st.sampled_from(list(MissReason))).value,
            "miss_position": 3,
            "miss_prompt_text": draw(texts),
            "template_source": draw(texts),
            "template_mends": json.dumps(draw(st.lists(texts, max_size=2))),
            "token_ids": encode_token_ids(draw(ids)),
        }
    if draw(st.booleans()):
        columns |= {
            "reasoning": draw(texts),
            "reasoning_tokens": 4,
            "reasoning_s": draw(seconds),
            "reasoning_was_cut": draw(st.integers(0, 1)),
        }
    return columns


@st.composite
def whole_chats(draw: st.DrawFn) -> WholeChat:
    columns = draw(st.lists(message_columns(), max_size=7))
    for at, row in enumerate(columns):
        row["is_pinned"] = draw(st.integers(0, 1))
        if at and draw(st.booleans()):
            earlier = st.integers(0, at - 1)
            left_out = draw(st.lists(earlier, max_size=2))
            fit = KeptFit(9, 8, 7, 6, 5, draw(st.booleans()), first_seen=draw(st.none() | earlier))  # type: ignore[arg-type]
            row["context_fit"] = json.dumps({**asdict(fit), "left_out": left_out})
    messages = [
        TreeMessage(draw(st.none() | st.integers(0, at - 1)) if at else None, row)
        for at, row in enumerate(columns)
    ]
    chat: dict[str, Any] = {
        "title": draw(texts),
        "created_at": draw(times),
        "updated_at": draw(times),
        "model_path": draw(st.none() | texts),
        "sampling": encode_sampling(draw(st.none() | samplings)),
        "draft": draw(texts),
        "is_private": draw(st.integers(0, 1)),
        "is_pinned": draw(st.integers(0, 1)),
        "context_choice": draw(st.sampled_from(["ask", "drop oldest", "stop"])),
        "system_prompt": draw(texts),
        "template": draw(st.none() | texts),
        "template_options": json.dumps(draw(st.dictionaries(texts, st.booleans() | texts, max_size=2))),
    }
    head = draw(st.none() | st.integers(0, len(messages) - 1)) if messages else None
    return WholeChat({k: v for k, v in chat.items() if v is not None}, tuple(messages), head)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(whole_chats(), max_size=3))
def test_a_round_trip_changes_nothing(chats: list[WholeChat]) -> None:
    first, second = new_store(), new_store()
    for number, chat in enumerate(chats):
        add_whole_chat(first, WholeChat(chat.columns, chat.messages, chat.head, f"test:{number}"))
    with tempfile.TemporaryDirectory() as folder:
        path = export_all(first, Path(folder) / "chats.json")
        report = import_into(second, path)
        assert report.num_imported == len(chats), report.text()
        assert sorted(map(repr, whole(second))) == sorted(map(repr, whole(first)))
        again = export_all(second, Path(folder) / "again.json")
        assert chats_in(again) == chats_in(path)
        # Neither here nor where it came from is it new.
        assert import_into(first, again).num_known == len(chats)
        assert import_into(second, path).num_known == len(chats)
    for store in (first, second):
        assert store.integrity_check() == []
        store.close()


def chats_in(path: Path) -> list[Any]:
    chats = json.loads(path.read_text(encoding="utf-8"))["chats"]
    return sorted(chats, key=lambda chat: str(chat["id"]))


def test_a_renamed_chat_that_is_still_here_does_not_come_in_again(tmp_path: Path) -> None:
    store = new_store()
    conversation = store.create_conversation("Before")
    store.add_user_message(conversation.id, "Hello", None)
    path = export_all(store, tmp_path / "chats.json")
    store.rename(conversation.id, "After")
    assert import_into(store, path).num_known == 1
    store.add_user_message(conversation.id, "More", store.conversation(conversation.id).head_id)
    # What is in the file is no longer what is here: it comes in beside it, and nothing is lost.
    assert import_into(store, path).num_imported == 1


def test_a_reply_that_was_being_written_comes_in_as_interrupted(tmp_path: Path) -> None:
    store = new_store()
    conversation = store.create_conversation("Live")
    question = store.add_user_message(conversation.id, "Go", None)
    begun = store.begin_reply(conversation.id, question.id, "/m.gguf", SamplingParams())
    store.save_reply(begun.id, "Half", None)
    other = new_store()
    import_into(other, export_all(store, tmp_path / "chats.json"))
    reply = other.branch(other.conversations()[0].id)[-1]
    assert (reply.content, reply.status) == ("Half", MessageStatus.INTERRUPTED)


def test_each_member_is_documented() -> None:
    columns = chat_columns(new_store())
    named = set(re.findall(r"^\| `(\w+)`", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))
    assert {*columns.chat, *columns.message} - named == set()


MINIMAL: dict[str, Any] = {
    everwarm_json.MARK: 1,
    "messages": [{"number": 1, "role": "user", "content": "Hi"}],
}


def message(**changes: Any) -> dict[str, Any]:
    return {**MINIMAL, "messages": [{**MINIMAL["messages"][0], **changes}]}


def test_the_least_that_a_chat_needs(tmp_path: Path) -> None:
    store = new_store()
    assert import_into(store, write_json(tmp_path / "chat.json", MINIMAL)).num_imported == 1


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ({**MINIMAL, everwarm_json.MARK: 2}, "newer Everwarm"),
        ({**MINIMAL, everwarm_json.MARK: "x"}, "version is no number"),
        ({**MINIMAL, "messages": {}}, "no list of messages"),
        ({**MINIMAL, "head": 9}, "its head, '9', is none of its messages"),
        (message(sampling={"temperature": -5}), "temperature"),
        ({**MINIMAL, "sampling": 5}, "its sampling is of another kind"),
        ({**MINIMAL, "template_options": []}, "its template_options is of another kind"),
        ({**MINIMAL, "template_options": {"a": []}}, "its template_options is of another kind"),
        ({**MINIMAL, "context_choice": "perhaps"}, "'perhaps' is not a valid ContextChoice"),
        (message(context_fit={"left_out": [1]}), "names none of those before it"),
        (message(context_fit={"left_out": [[]]}), "names none of those before it"),
        (message(context_fit={"num_prompt_tokens": "many"}), "a value in it cannot be used"),
        (message(template_mends=[5]), "its template_mends is of another kind"),
        ({**MINIMAL, "created_at": "yesterday"}, "its created_at cannot be used"),
        ({**MINIMAL, "title": 5}, "its title is of another kind"),
        ({**MINIMAL, "is_pinned": "yes"}, "its is_pinned is of another kind"),
        (message(parent=1), "the parent of message 1 is none of the messages before it"),
        (message(role="tool"), "no role"),
        (message(status="done"), "'done' is not a valid MessageStatus"),
        (message(finish_reason="tired"), "FinishReason"),
        (message(token_ids=[2**40]), "its token_ids cannot be used"),
        (message(token_ids="abc"), "its token_ids cannot be used"),
        (message(seed=2**70), "too large"),
        (message(number=None), "missing or there twice"),
        ({**MINIMAL, "messages": MINIMAL["messages"] * 2}, "missing or there twice"),
        ({**MINIMAL, "messages": [7]}, "one of its messages is no object"),
    ],
)
def test_what_no_chat_can_hold_is_refused_with_a_reason(
    tmp_path: Path, chat: dict[str, Any], reason: str
) -> None:
    store: ConversationStore = new_store()
    report = import_into(store, write_json(tmp_path / "chat.json", [chat]))
    assert store.conversations() == []
    assert reason in report.text()
    assert "fault of Everwarm" not in report.text()


def test_what_this_version_does_not_know_is_told(tmp_path: Path) -> None:
    report = import_into(new_store(), write_json(tmp_path / "chat.json", {**MINIMAL, "mood": "good"}))
    assert report.num_imported == 1
    assert "not imported: 1 value named 'mood', which this version does not know" in report.text()
