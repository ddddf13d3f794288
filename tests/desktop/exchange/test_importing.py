"""Each program's chats as they look in its own files."""

from __future__ import annotations

import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from desktop.conversations import MessageStatus, NotSaved
from desktop.conversations.whole_chats import chat_columns, read_whole_chat
from desktop.exchange import add_incoming, import_chats
from tests.desktop.exchange.imports import (
    FIXTURES,
    branch_of,
    chat_titled,
    import_into,
    new_store,
    said,
    whole,
    write_json,
)

CHATGPT = FIXTURES / "chatgpt-conversations.json"


def test_chatgpt_with_all_its_oddities() -> None:
    store = new_store()
    report = import_into(store, CHATGPT)
    assert said(store, "Sky colours") == [
        (
            "user",
            "[image: not imported]\n\nWhy is the sky blue here?\n\n[attachment notes.pdf: not imported]",
        ),
        ("assistant", "Short wavelengths scatter more."),
        ("user", "Compute 2**10"),
        ("assistant", "```python\nprint(2**10)\n```\n\n*python:*\n\n```\n1024\n```\n\nIt is **1024**."),
    ]
    last = branch_of(store, "Sky colours")[-1]
    assert last.reasoning is not None
    assert (last.reasoning.text, last.reasoning.seconds) == ("**Checking**\n\n2**10 is 1024.", 7)
    assert last.model_path == "o3"
    # create_time is null: the chat began with its first message.
    assert chat_titled(store, "Sky colours").created_at == datetime.fromtimestamp(1718000000.25, UTC)
    # No metadata, no create_time, no title, no current_node, a kind of content nobody knows.
    assert said(store, "No metadata at all") == [
        ("user", "No metadata at all"),
        ("assistant", "[part of unknown kind hologram: not imported]"),
    ]
    assert said(store, "Round and round") == [("user", "My parent is missing")]
    assert (report.num_imported, report.num_skipped, report.is_success) == (3, 2, True)
    assert report.summary() == (
        "Imported 3 chats (8 messages) from ChatGPT; 2 not imported; 3 came in with parts missing."
    )
    text = report.text()
    assert "Holiday plans (chatgpt-conversations.json): it has no messages; it may be a folder" in text
    assert "Nothing said (chatgpt-conversations.json): it has no messages" in text
    assert (
        "Round and round (chatgpt-conversations.json): not imported: 2 messages whose parent links go in a circle"
        in text
    )


def test_the_other_branch_comes_in_too() -> None:
    store = new_store()
    import_into(store, CHATGPT)
    [chat] = [chat for chat in whole(store) if chat.columns["title"] == "Sky colours"]
    siblings = [message.columns["content"] for message in chat.messages if message.parent == 0]
    assert siblings == ["Because of Rayleigh scattering.", "Short wavelengths scatter more."]


def test_a_zip_with_many_files_is_read_without_unpacking_it(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(CHATGPT, "../../conversations-000.json")
        archive.writestr("conversations-001.json", '[{"role": "user", "content": "In the second file"}]')
        archive.writestr("user.json", '{"id": "user-1", "email": "someone@example.org"}')
        archive.writestr("file-Xy12-sky.png", b"\x89PNG")
    store = new_store()
    report = import_into(store, path)
    assert report.num_imported == 4
    assert "user.json: it holds no chats of a kind that is known" in report.text()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["export.zip"]
    assert import_into(store, CHATGPT).num_known == 3


def test_open_webui() -> None:
    store = new_store()
    import_into(store, FIXTURES / "open-webui.json")
    assert said(store, "Trains") == [
        ("user", "How fast is a tram?\n\n[image: not imported]\n\n[file tram.txt: not imported]"),
        ("assistant", "Up to 70 km/h.\n[tool call: not imported]"),
    ]
    reply = branch_of(store, "Trains")[-1]
    assert reply.reasoning is not None
    assert (reply.reasoning.text, reply.reasoning.seconds) == ("Trams < trains.\nSo 70.", 5)
    failed = branch_of(store, "Failed")[-1]
    assert (failed.status, failed.error) == (MessageStatus.FAILED, "Ollama: 500, model not found")


def test_lm_studio() -> None:
    store = new_store()
    import_into(store, FIXTURES / "lm-studio.conversation.json")
    assert said(store, "Tea") == [
        ("user", "How long does tea brew?\n\n[image: not imported]"),
        ("assistant", "Three minutes."),
        ("user", "Thanks"),
    ]
    reply = branch_of(store, "Tea")[-2]
    assert reply.reasoning is not None
    assert (reply.reasoning.text, reply.reasoning.seconds) == ("Green or black?", 1.25)
    assert chat_titled(store, "Tea").draft == "and coffee?"
    [chat] = whole(store)
    assert "Five minutes." in [message.columns["content"] for message in chat.messages]


@pytest.mark.parametrize("chosen", ["jan", "jan/threads/jan_1718000000/thread.json"])
def test_jan_by_its_folder_or_by_a_thread(chosen: str) -> None:
    store = new_store()
    report = import_into(store, FIXTURES / chosen)
    assert report.num_imported == 1
    assert said(store, "Bread") == [
        ("user", "Does rye rise?\n\n[image: not imported]"),
        ("assistant", "Yes, slowly."),
    ]
    reply = branch_of(store, "Bread")[-1]
    assert reply.reasoning is not None
    assert reply.reasoning.text == "Little gluten."
    assert reply.model_path == "llama3.2-3b-instruct"


def test_jan_in_a_zip(tmp_path: Path) -> None:
    path = Path(shutil.make_archive(str(tmp_path / "jan"), "zip", FIXTURES / "jan"))
    store = new_store()
    assert import_into(store, path).num_imported == 1
    assert import_into(store, FIXTURES / "jan").num_known == 1
    assert chat_titled(store, "Bread").created_at == datetime.fromtimestamp(1718000000, UTC)


def test_silly_tavern() -> None:
    store = new_store()
    report = import_into(store, FIXTURES / "silly-tavern.jsonl")
    assert said(store, "Seraphina") == [
        ("assistant", "*She smiles.* Welcome!"),
        ("user", "Where am I?\n\n[image: not imported]"),
        ("assistant", "In the glade."),
    ]
    [chat] = whole(store)
    assert [m.columns["content"] for m in chat.messages if m.parent == 1] == ["In a forest.", "In the glade."]
    reply = branch_of(store, "Seraphina")[-1]
    assert reply.reasoning is not None
    assert (reply.reasoning.text, reply.reasoning.seconds) == ("A calm place.", 2.5)
    assert "not imported: 1 hidden line, 1 image" in report.text()


def test_messages_of_openais_kind() -> None:
    store = new_store()
    import_into(
        store, *(FIXTURES / f"openai-{name}" for name in ("messages.json", "list.json", "lines.jsonl"))
    )
    assert sorted(conversation.title for conversation in store.conversations()) == [
        "First chat",
        "One",
        "Second chat",
        "What is on it?",
    ]
    assert said(store, "What is on it?") == [
        ("user", "What is on it?\n\n[image: not imported]"),
        ("assistant", "[tool call look: not imported]\n\n*tool:*\n\n```\na cat\n```\n\nA cat."),
    ]


def test_a_system_prompt_is_the_chats() -> None:
    store = new_store()
    import_into(store, FIXTURES)
    prompts = {c.title: c.settings.system_prompt for c in store.conversations() if c.settings.system_prompt}
    assert prompts == {
        "What is on it?": "Be brief.",
        "Bread": "Bake well.",
        "Night sky": "Be brief.",
        "Tea": "You are a tea master.",
        "Trains": "Answer briefly.",
    }


def test_a_chat_of_which_the_system_prompt_was_shown_last_shows_its_messages(tmp_path: Path) -> None:
    def node(role: str, text: str, parent: str | None) -> dict[str, object]:
        return {"parent": parent, "message": {"author": {"role": role}, "content": {"parts": [text]}}}

    mapping = {"s": node("system", "Be kind.", None), "u": node("user", "Hello", "s")}
    store = new_store()
    import_into(store, write_json(tmp_path / "a.json", [{"mapping": mapping, "current_node": "s"}]))
    assert said(store, "Hello") == [("user", "Hello")]
    assert chat_titled(store, "Hello").settings.system_prompt == "Be kind."


def test_importing_twice_makes_no_doubles() -> None:
    store = new_store()
    first = import_into(store, FIXTURES)
    before = whole(store)
    second = import_into(store, FIXTURES)
    assert (second.num_imported, second.num_known) == (0, first.num_imported)
    assert second.is_success
    assert second.summary().startswith(f"No chat was imported; {first.num_imported} were here already")
    assert whole(store) == before


def test_a_chat_that_went_on_here_is_known_and_one_that_went_on_there_comes_in_beside_it(
    tmp_path: Path,
) -> None:
    store = new_store()
    chat = {"id": "c", "title": "Going on", "messages": [{"role": "user", "content": "One"}]}
    path = write_json(tmp_path / "chat.json", chat)
    import_into(store, path)
    conversation = chat_titled(store, "Going on")
    store.add_user_message(conversation.id, "Two", conversation.head_id)
    assert import_into(store, path).num_known == 1
    chat["messages"].append({"role": "assistant", "content": "Other"})  # type: ignore[attr-defined]
    assert import_into(store, write_json(path, chat)).num_imported == 1
    assert import_into(store, path).num_known == 1
    assert len(store.conversations()) == 2


def test_a_deleted_chat_can_be_imported_again() -> None:
    store = new_store()
    import_into(store, FIXTURES / "openai-list.json")
    store.delete(store.conversations()[0].id)
    assert import_into(store, FIXTURES / "openai-list.json").num_imported == 1


def test_nothing_is_no_success(tmp_path: Path) -> None:
    report = import_into(new_store(), write_json(tmp_path / "a.json", {"settings": {"theme": "dark"}}))
    assert not report.is_success
    assert report.summary() == "No chat was imported; 1 file without readable chats."
    assert "a.json: it holds no chats of a kind that is known" in report.text()
    assert not import_into(new_store(), write_json(tmp_path / "b.json", [])).is_success
    assert not import_into(new_store(), tmp_path / "is not there.json").is_success
    assert not import_into(new_store()).is_success


def test_a_file_that_was_not_saved_completely_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(CHATGPT.read_bytes()[:-700])
    store = new_store()
    report = import_into(store, path)
    assert (report.num_imported, report.num_cut, report.num_unreadable) == (2, 1, 0)
    assert "1 file not read to the end" in report.summary()
    assert "Holiday plans (cut.json): it has no messages" in report.text()
    assert "cut.json: the file ends too early; it may not have been saved completely" in report.text()


def test_a_full_disk_leaves_whole_chats_only() -> None:
    store = new_store()
    columns = chat_columns(store)
    added = []

    def add(chat):  # type: ignore[no-untyped-def]
        if added:
            raise NotSaved("Not saved: the disk is full. Free some space, then try again.")
        added.append(add_incoming(store, chat))
        return added[-1]

    report = import_chats([FIXTURES / "openai-lines.jsonl"], columns, add)
    assert (report.num_imported, report.is_success) == (1, False)
    assert report.summary().endswith(
        "the disk is full. Free some space, then try again. The chats before it are here."
    )
    assert [len(chat.messages) for chat in whole(store)] == [2]
    assert store.integrity_check() == []


def test_stopping_keeps_what_had_come_in() -> None:
    store = new_store()
    columns = chat_columns(store)
    report = import_chats(
        [FIXTURES / "openai-lines.jsonl"],
        columns,
        lambda chat: add_incoming(store, chat),
        is_cancelled=lambda: len(store.conversations()) == 1,
    )
    assert report.summary() == (
        "Imported 1 chat (2 messages) from OpenAI messages. It was stopped; what had come in stays."
    )
    assert len(store.conversations()) == 1


def test_imported_chats_are_chats_like_any_other() -> None:
    store = new_store()
    import_into(store, FIXTURES)
    assert store.integrity_check() == []
    owners = {conversation.owner for conversation in store.conversations()}
    assert len(owners) == len(store.conversations())
    for conversation in store.conversations():
        branch = store.branch(conversation.id)
        assert branch
        reply = store.add_user_message(conversation.id, "And now?", branch[-1].id)
        assert read_whole_chat(store, conversation.id).messages[-1].columns["content"] == reply.content
