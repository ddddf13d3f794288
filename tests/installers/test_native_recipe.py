from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from installers.native_recipe import (
    CMAKE_FLAGS,
    MANIFEST_NAME,
    NativeRecipe,
    compiler_in_use,
    recipe_for_this_system,
    why_not_usable,
    write_manifest,
)

RECIPE = recipe_for_this_system()


@pytest.fixture
def built_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "libllama.so.0").write_bytes(b"\x7fELF llama")
    (folder / "libllama.so").symlink_to("libllama.so.0")
    write_manifest(folder, RECIPE, "gcc-12")
    return folder


def test_folder_name_says_package_version_and_kind() -> None:
    name = RECIPE.folder_name("gcc-12")
    assert re.fullmatch(
        rf"llama-cpp-python-{re.escape(RECIPE.package.version)}-[0-9a-f]{{10}}-cpu-variants", name
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, flags={**CMAKE_FLAGS, "GGML_NATIVE": "ON"}),
        replace(RECIPE, flags={**CMAKE_FLAGS, "GGML_VULKAN": "ON"}),
        replace(RECIPE, system="linux-riscv64"),
        replace(RECIPE, package=replace(RECIPE.package, version="0.3.37")),
        replace(RECIPE, package=replace(RECIPE.package, sha256="0" * 64)),
    ],
    ids=["other flag", "one more flag", "other system", "other version", "other source"],
)
def test_another_recipe_has_another_folder_and_refuses_this_one(
    other: NativeRecipe, built_folder: Path
) -> None:
    assert other.folder_name("gcc-12") != RECIPE.folder_name("gcc-12")
    assert why_not_usable(built_folder, other) == "it was built from another version or with other flags"


def test_another_compiler_has_another_folder() -> None:
    assert RECIPE.folder_name("gcc-13") != RECIPE.folder_name("gcc-12")


def test_the_order_of_flags_does_not_matter() -> None:
    shuffled = replace(RECIPE, flags=dict(sorted(CMAKE_FLAGS.items(), reverse=True)))
    assert shuffled.folder_name("gcc-12") == RECIPE.folder_name("gcc-12")


def test_compiler_is_named_by_family_and_major_version_only() -> None:
    assert re.fullmatch(r"(gcc|clang)-\d+|cmake-default", compiler_in_use())


def test_a_compiler_that_is_not_there_is_left_to_cmake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiler_in_use() == "cmake-default"


def test_a_folder_as_it_was_built_is_usable(built_folder: Path) -> None:
    assert why_not_usable(built_folder, RECIPE) is None


def test_a_moved_folder_is_usable(built_folder: Path, tmp_path: Path) -> None:
    assert why_not_usable(built_folder.rename(tmp_path / "elsewhere"), RECIPE) is None


def test_one_changed_byte_is_noticed(built_folder: Path) -> None:
    (built_folder / "libllama.so.0").write_bytes(b"\x7fELF llamb")
    assert why_not_usable(built_folder, RECIPE) == "its files are not those that were built"


def test_a_missing_file_is_noticed(built_folder: Path) -> None:
    (built_folder / "libllama.so").unlink()
    assert why_not_usable(built_folder, RECIPE) == "its files are not those that were built"


def test_a_library_that_was_added_is_noticed(built_folder: Path) -> None:
    (built_folder / "libggml-cpu-native.so").write_bytes(b"made for one CPU")
    assert why_not_usable(built_folder, RECIPE) == "its files are not those that were built"


def test_a_link_to_another_file_is_noticed(built_folder: Path) -> None:
    (built_folder / "libllama.so").unlink()
    (built_folder / "libllama.so").symlink_to("/usr/lib/libllama.so.0")
    assert why_not_usable(built_folder, RECIPE) == "its files are not those that were built"


def test_a_folder_without_manifest_is_not_usable(built_folder: Path) -> None:
    (built_folder / MANIFEST_NAME).unlink()
    assert why_not_usable(built_folder, RECIPE) == "it has no manifest"


def test_an_absent_folder_is_not_usable(tmp_path: Path) -> None:
    assert why_not_usable(tmp_path / "absent", RECIPE) == "it is not there"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", json.dumps({"recipe": {}})])
def test_a_damaged_manifest_makes_the_folder_unusable(built_folder: Path, content: str) -> None:
    (built_folder / MANIFEST_NAME).write_text(content)
    assert "manifest cannot be read" in (why_not_usable(built_folder, RECIPE) or "")
