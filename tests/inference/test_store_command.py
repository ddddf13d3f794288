"""`python -m inference store DIR …`: the outside contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference.messages import Message
from tests.inference.stored_chats import StoredChats

ROOT = Path(__file__).resolve().parents[2]
STATS = {
    "blocks",
    "tokens",
    "checkpoints",
    "bytes",
    "budget_bytes",
    "bytes_written",
    "bytes_written_today",
    "unknown_layouts",
    "references",
    "pins",
}
CHAT = [Message("system", "z" * 40), Message("user", "bdgkq" * 20)]
Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    environment = {**os.environ, "EVERWARM_DATA_DIR": str(tmp_path / "data")}

    def run(*arguments: str | Path) -> Result:
        command = [sys.executable, "-m", "inference", "store", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)

    return run


@pytest.fixture
def folder(tmp_path: Path, tiny_paths: dict[str, Path]) -> Path:
    """A store with one chat of CHAT on the gqa model."""
    return store_chat(tiny_paths["gqa"], tmp_path / "kv")


def store_chat(model: Path, folder: Path) -> Path:
    chats = StoredChats(model, folder)
    chats.ask(CHAT, owner="chat", max_tokens=3)
    chats.close()
    return folder


def object_of(result: Result) -> dict[str, Any]:
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.kv"))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def write_chat(path: Path, messages: list[Message]) -> Path:
    path.write_text(json.dumps([{"role": message.role, "content": message.content} for message in messages]))
    return path


# --- stats, verify, prune, wipe --------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["stats", "verify", "prune", "wipe"])
def test_a_folder_that_is_no_store_is_left_as_it_is(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    result = run(tmp_path / "photos", command)
    assert (result.returncode, result.stdout) == (1, "")
    assert "holds no store" in result.stderr
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_stats_count_what_is_in_the_folder(run: Run, folder: Path) -> None:
    stats = object_of(run(folder, "stats", "--json"))
    on_disk = sum(path.stat().st_size for path in files(folder))
    assert stats.keys() == STATS
    assert stats["blocks"] == len(files(folder))
    assert stats["bytes"] == stats["bytes_written"] == stats["bytes_written_today"] == on_disk > 0
    assert stats["tokens"] > 140
    assert (stats["checkpoints"], stats["unknown_layouts"]) == (0, 0)
    assert (stats["references"], stats["pins"]) == (1, 0)
    assert stats["budget_bytes"] > 0


def test_without_json_there_is_a_line_for_each_figure(run: Run, folder: Path) -> None:
    result = run(folder, "stats")
    assert (result.returncode, result.stderr) == (0, "")
    lines = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines())
    assert lines.keys() == {name.replace("_", " ") for name in STATS}
    assert int(lines["blocks"]) == len(files(folder))


def test_a_whole_store_verifies_with_exit_code_0(run: Run, folder: Path) -> None:
    result = run(folder, "verify", "--json")
    assert result.returncode == 0
    expected = {"checked": len(files(folder)), "removed": 0, "orphans": 0, "newer": 0}
    assert object_of(result).items() >= expected.items()


def test_verify_removes_damage_and_tells_by_exit_code_1(run: Run, folder: Path) -> None:
    damaged, *whole = files(folder)
    damage(damaged)
    result = run(folder, "verify", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["removed"] == 1
    assert damaged.name in result.stderr
    assert files(folder) == whole
    assert run(folder, "verify").returncode == 0


def test_prune_evicts_down_to_what_was_asked_for(run: Run, folder: Path) -> None:
    before = object_of(run(folder, "stats", "--json"))["bytes"]
    unchanged = object_of(run(folder, "prune", "--json"))
    assert unchanged["bytes"] == before
    pruned = object_of(run(folder, "prune", "--to-bytes", str(before - 1), "--json"))
    assert 0 < pruned["bytes"] < before
    assert pruned["bytes"] == sum(path.stat().st_size for path in files(folder))


def test_wipe_leaves_nothing(run: Run, folder: Path) -> None:
    wiped = object_of(run(folder, "wipe", "--json"))
    assert (wiped["blocks"], wiped["bytes"], wiped["references"]) == (0, 0, 0)
    assert files(folder) == []
    assert list((folder / "owners").iterdir()) == []


@pytest.mark.parametrize(
    "command", [["stats"], ["verify"], ["prune"], ["wipe"], ["explain", "m", "--prompt", "x"]]
)
@pytest.mark.parametrize("is_file", [False, True])
def test_a_folder_that_is_none_is_one_line_and_exit_code_1(
    run: Run, tmp_path: Path, command: list[str], is_file: bool
) -> None:
    path = tmp_path / "nothing"
    if is_file:
        path.write_text("mine")
    result = run(path, *command)
    assert (result.returncode, result.stdout) == (1, "")
    assert "is no folder" in result.stderr
    assert result.stderr.count("\n") == 1
    assert path.exists() == is_file


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["stat"],
        ["prune", "--to-bytes", "-1"],
        ["prune", "--to-bytes", "much"],
        ["verify", "--deep"],
        ["explain", "model.gguf"],
        ["explain", "model.gguf", "--prompt", "x", "--chat", "y"],
        ["explain", "model.gguf", "--prompt", "x", "--context", "0"],
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout) == (2, "")


# --- explain ---------------------------------------------------------------------------------------------


def explain(run: Run, folder: Path, model: Path, chat: list[Message]) -> dict[str, Any]:
    path = write_chat(folder.parent / "chat.json", chat)
    before = {file: file.read_bytes() for file in files(folder)}
    explained = object_of(run(folder, "explain", model, "--chat", path, "--json"))
    # It looks, and changes nothing.
    assert {file: file.read_bytes() for file in files(folder)} == before
    return explained


def test_explain_tells_that_all_of_a_chat_is_stored(
    run: Run, folder: Path, tiny_paths: dict[str, Path]
) -> None:
    explained = explain(run, folder, tiny_paths["gqa"], CHAT)
    assert explained["restorable_tokens"] == explained["stored_tokens"] == explained["prompt_tokens"] - 1
    assert 0 < explained["bytes_to_read"] <= sum(path.stat().st_size for path in files(folder))
    assert (explained["ends_at"], explained["reason"]) == (None, None)


def test_explain_tells_that_nothing_is_stored_for_another_model(
    run: Run, folder: Path, tiny_paths: dict[str, Path]
) -> None:
    explained = explain(run, folder, tiny_paths["mha"], CHAT)
    assert (explained["stored_tokens"], explained["bytes_to_read"], explained["ends_at"]) == (0, 0, 0)
    assert (explained["reason"], explained["stored_text"]) == ("nothing stored", None)


def test_explain_shows_both_texts_where_a_prompt_leaves_what_is_stored(
    run: Run, folder: Path, tiny_paths: dict[str, Path]
) -> None:
    edited = [CHAT[0], Message("user", "bdgkq" * 10 + "X")]
    explained = explain(run, folder, tiny_paths["gqa"], edited)
    assert explained["reason"] == "text differs"
    assert (explained["prompt_text"], explained["stored_text"]) == ("X", "b")
    assert explained["ends_at"] == explained["restorable_tokens"] < explained["prompt_tokens"] - 1


def test_explain_tells_of_another_system_prompt(run: Run, folder: Path, tiny_paths: dict[str, Path]) -> None:
    changed = [Message("system", "z" * 20 + "B" + "z" * 19), CHAT[1]]
    explained = explain(run, folder, tiny_paths["gqa"], changed)
    assert explained["reason"] == "system prompt differs"
    assert (explained["prompt_text"], explained["stored_text"]) == ("B", "z")


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_explain_tells_that_a_model_can_go_on_at_message_ends_only(
    run: Run, tmp_path: Path, tiny_paths: dict[str, Path], kind: str
) -> None:
    folder = store_chat(tiny_paths[kind], tmp_path / "kv")
    edited = [CHAT[0], Message("user", "bdgkq" * 10 + "X")]
    explained = explain(run, folder, tiny_paths[kind], edited)
    # At the end of the system prompt: the question is another one.
    assert 40 < explained["restorable_tokens"] < 60
    if kind == "hybrid":
        # Its attention rows are stored further on.
        assert explained["reason"] == "message ends only"
        assert explained["stored_tokens"] > explained["restorable_tokens"] == explained["ends_at"]


def test_explain_tells_what_was_evicted(run: Run, folder: Path, tiny_paths: dict[str, Path]) -> None:
    assert run(folder, "prune", "--to-bytes", "0").returncode == 0
    explained = explain(run, folder, tiny_paths["gqa"], CHAT)
    assert (explained["reason"], explained["ends_at"]) == ("evicted", 0)


def test_explain_takes_a_raw_prompt_and_prints_text(
    run: Run, folder: Path, tiny_paths: dict[str, Path]
) -> None:
    result = run(folder, "explain", tiny_paths["gqa"], "--prompt", "never read")
    assert (result.returncode, result.stderr) == (0, "")
    assert "prompt tokens" in result.stdout
    assert "text differs" in result.stdout


@pytest.mark.parametrize("model", ["missing.gguf", "text.gguf"])
def test_explain_refuses_what_is_no_model(run: Run, folder: Path, tmp_path: Path, model: str) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    result = run(folder, "explain", tmp_path / model, "--prompt", "x", "--json")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
