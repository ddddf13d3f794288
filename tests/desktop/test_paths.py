"""The data folder: where it is, who may read it, and whether it takes bytes."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from desktop.paths import DataFolderUnusable, DataPaths


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB. Permission bits would not stop root; a mount does."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if sys.platform == "win32" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_data_folder_is_the_users_own() -> None:
    paths = DataPaths.from_environment({})
    assert paths.root == Path(platformdirs.user_data_dir("everwarm", appauthor=False))


def test_a_variable_replaces_the_data_folder(tmp_path: Path) -> None:
    paths = DataPaths.from_environment({"EVERWARM_DATA_DIR": str(tmp_path)})
    assert paths.database == tmp_path / "chats.sqlite3"
    assert paths.settings == tmp_path / "settings.toml"
    assert (paths.kv, paths.models, paths.logs) == (tmp_path / "kv", tmp_path / "models", tmp_path / "logs")


def test_a_chosen_data_folder_may_begin_at_home_or_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert DataPaths.from_environment({"EVERWARM_DATA_DIR": "~/chats"}).root == tmp_path / "chats"
    assert DataPaths.from_environment({"EVERWARM_DATA_DIR": "chats"}).root == tmp_path / "chats"


def test_an_empty_variable_counts_as_unset() -> None:
    assert DataPaths.from_environment({"EVERWARM_DATA_DIR": ""}) == DataPaths.from_environment({})


def test_preparing_makes_the_folders_and_leaves_no_probe(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "new" / "everwarm")
    paths.prepare()
    paths.prepare()
    assert sorted(paths.root.iterdir()) == [paths.kv, paths.logs, paths.models]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits")
def test_everything_kept_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path / "everwarm")
    paths.prepare()
    assert mode(paths.root) == 0o700
    for folder in (paths.kv, paths.logs, paths.models):
        folder.chmod(0o755)
    paths.database.touch(mode=0o644)
    paths.settings.touch(mode=0o644)
    paths.prepare()
    assert {mode(folder) for folder in (paths.kv, paths.logs, paths.models)} == {0o700}
    assert {mode(file) for file in (paths.database, paths.settings)} == {0o600}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits")
def test_a_folder_that_was_there_before_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    DataPaths(shared).prepare()
    assert mode(shared) == 0o755


def test_a_read_only_folder_is_named_with_what_to_do(mounted: Path) -> None:
    paths = DataPaths(mounted)
    paths.prepare()
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    with pytest.raises(
        DataFolderUnusable, match=r"read-only\. Make it writable, or set EVERWARM_DATA_DIR"
    ) as refusal:
        paths.prepare()
    assert str(mounted) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_full_disk_is_found_by_writing(mounted: Path) -> None:
    paths = DataPaths(mounted)
    paths.prepare()
    with (mounted / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    with pytest.raises(DataFolderUnusable, match=r"full\. Free some space"):
        paths.prepare()
    assert not (mounted / ".write-probe").exists()
    (mounted / "ballast").unlink()
    paths.prepare()


@pytest.mark.parametrize("name", ["everwarm", "everwarm/kv"])
def test_a_file_in_a_folders_place_is_named(tmp_path: Path, name: str) -> None:
    in_the_way = tmp_path / name
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("mine")
    with pytest.raises(DataFolderUnusable, match="should be a folder") as refusal:
        DataPaths(tmp_path / "everwarm").prepare()
    assert str(in_the_way) in str(refusal.value)
    assert in_the_way.read_text() == "mine"


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataFolderUnusable, match="should be a folder"):
        DataPaths(tmp_path / "file" / "everwarm").prepare()


def test_an_unforeseen_error_is_told_in_the_systems_words(tmp_path: Path) -> None:
    with pytest.raises(DataFolderUnusable, match="File name too long"):
        DataPaths(tmp_path / ("x" * 300)).prepare()
