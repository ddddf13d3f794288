from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installers.environment import (
    NATIVE_LIBRARY_MARKER,
    Stamps,
    ensure_environment,
    python_of,
    recorded_native_library,
    stamps_of,
)


def test_a_recorded_step_is_current_until_its_key_changes(tmp_path: Path) -> None:
    stamps = Stamps(tmp_path / "stamps.json")
    stamps.record("packages", "a")
    stamps.record("model", "b")
    assert stamps.is_current("packages", "a")
    assert stamps.is_current("model", "b")
    assert not stamps.is_current("packages", "other lock")


def test_stamps_outlive_the_process_that_wrote_them(tmp_path: Path) -> None:
    Stamps(tmp_path / "stamps.json").record("packages", "a")
    assert Stamps(tmp_path / "stamps.json").is_current("packages", "a")


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_damaged_stamps_mean_that_nothing_was_done(tmp_path: Path, content: str) -> None:
    (tmp_path / "stamps.json").write_text(content)
    stamps = Stamps(tmp_path / "stamps.json")
    assert not stamps.is_current("packages", "a")
    stamps.record("packages", "a")
    assert stamps.is_current("packages", "a")


def test_an_environment_is_made_once_and_again_for_another_python(tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    ensure_environment(prefix)
    assert python_of(prefix).exists()
    left_by_a_person = prefix / "note"
    left_by_a_person.touch()
    ensure_environment(prefix)
    assert left_by_a_person.exists()
    stamps_of(prefix).record("environment", "3.10")
    ensure_environment(prefix)
    assert not left_by_a_person.exists()
    assert stamps_of(prefix).is_current("environment", "{}.{}".format(*sys.version_info[:2]))


def test_the_native_library_is_read_from_the_marker(tmp_path: Path) -> None:
    (tmp_path / NATIVE_LIBRARY_MARKER).write_text("/cache/native/built\n")
    assert recorded_native_library(tmp_path) == Path("/cache/native/built")


def test_an_environment_without_marker_has_no_native_library(tmp_path: Path) -> None:
    assert recorded_native_library(tmp_path) is None
