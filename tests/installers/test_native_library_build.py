from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from installers import native_library
from installers.environment import NATIVE_LIBRARY_MARKER, ROOT, recorded_native_library
from installers.errors import SetUpError
from installers.native_library import bindings_wheel, build_native_library, ensure_native_library
from installers.native_recipe import (
    MANIFEST_NAME,
    NativeRecipe,
    recipe_for_this_system,
    why_not_usable,
    write_manifest,
)

RECIPE = recipe_for_this_system()


class ScriptedBuild:
    """Stands in for the five minutes of compiling: writes what a build would leave, and counts."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(self, recipe: NativeRecipe, compiler: str, folder: Path, log: Path) -> None:
        self.folders.append(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "libllama.so").write_bytes(b"llama")
        write_manifest(folder, recipe, compiler)


@pytest.fixture
def scripted_build(monkeypatch: pytest.MonkeyPatch) -> ScriptedBuild:
    build = ScriptedBuild()
    monkeypatch.setattr(native_library, "build_native_library", build)
    return build


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "venv").mkdir()
    return tmp_path / "venv"


def test_first_set_up_builds_and_records_the_folder(
    scripted_build: ScriptedBuild, prefix: Path, tmp_path: Path
) -> None:
    folder = ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    assert scripted_build.folders == [folder]
    assert recorded_native_library(prefix) == folder


def test_second_clone_takes_the_folder_from_the_cache(
    scripted_build: ScriptedBuild, prefix: Path, tmp_path: Path
) -> None:
    folder = ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    second_clone = tmp_path / "second"
    second_clone.mkdir()
    assert ensure_native_library(RECIPE, second_clone, tmp_path / "cache") == folder
    assert len(scripted_build.folders) == 1


@pytest.mark.parametrize(
    "damage", [lambda f: (f / MANIFEST_NAME).unlink(), lambda f: (f / "libllama.so").write_bytes(b"x")]
)
def test_a_folder_that_does_not_match_its_manifest_is_built_again(
    scripted_build: ScriptedBuild, prefix: Path, tmp_path: Path, damage: Any
) -> None:
    folder = ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    damage(folder)
    assert ensure_native_library(RECIPE, prefix, tmp_path / "cache") == folder
    assert scripted_build.folders == [folder, folder]


def test_a_recorded_folder_that_is_gone_is_built_again(
    scripted_build: ScriptedBuild, prefix: Path, tmp_path: Path
) -> None:
    folder = ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    shutil.rmtree(folder)
    ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    assert scripted_build.folders == [folder, folder]


def test_a_newer_compiler_does_not_rebuild_what_is_in_use(
    scripted_build: ScriptedBuild, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    monkeypatch.setattr(native_library, "compiler_in_use", lambda: "gcc-99")
    assert ensure_native_library(RECIPE, prefix, tmp_path / "cache") == folder
    assert len(scripted_build.folders) == 1


def test_a_build_that_fails_leaves_no_folder_and_no_record(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*arguments: Any, **options: Any) -> None:
        raise SetUpError("Downloading llama-cpp-python failed.")

    monkeypatch.setattr(native_library, "run_pip", no_network)
    with pytest.raises(SetUpError, match="Downloading"):
        ensure_native_library(RECIPE, prefix, tmp_path / "cache")
    assert list((tmp_path / "cache" / "native").iterdir()) == []
    assert not (prefix / NATIVE_LIBRARY_MARKER).exists()


def test_what_a_killed_build_left_is_removed_after_a_day(tmp_path: Path) -> None:
    abandoned, at_work = tmp_path / ".building-a", tmp_path / ".building-b"
    abandoned.mkdir()
    at_work.mkdir()
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(abandoned, (two_days_ago, two_days_ago))
    native_library._remove_abandoned_builds(tmp_path)
    assert list(tmp_path.iterdir()) == [at_work]


def test_bindings_that_carry_native_libraries_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_sdist(verb: str, package: Any, options: Sequence[str], log: Path, *, doing: str) -> None:
        (Path(options[options.index("--dest") + 1]) / "llama_cpp_python.tar.gz").touch()

    def build_wheel_for_this_cpu(command: Sequence[str], log: Path, **options: Any) -> None:
        wheel = Path(command[command.index("--wheel-dir") + 1]) / "llama_cpp_python-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llama_cpp/lib/libllama.so", b"made for one CPU")

    monkeypatch.setattr(native_library, "run_pip", leave_sdist)
    monkeypatch.setattr(native_library, "run_logged", build_wheel_for_this_cpu)
    folder = tmp_path / "native" / "built"
    with pytest.raises(SetUpError, match=r"llama_cpp/lib/libllama\.so"):
        build_native_library(RECIPE, "gcc-12", folder, tmp_path / "build.log")
    assert not folder.exists()


@pytest.mark.parametrize(
    "lines",
    [
        ["[5/50] CXX a.o", "[24/50] b.o", "[25/50] c.o", "[50/50] d.o"],
        ["[ 10%] A", "[ 49%] B", "[ 50%] C", "[100%] D"],
    ],
)
def test_progress_is_printed_by_tenths(lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    printer = native_library._ProgressPrinter()
    for line in ["-- Configuring", *lines]:
        printer(line)
    assert capsys.readouterr().out.split("\n") == ["  10 %", "  40 %", "  50 %", "  100 %", ""]


@pytest.mark.parametrize(("asked", "jobs"), [("1", 1), ("3", 3), ("0", 1), ("many", 1)])
def test_build_jobs_can_be_chosen(asked: str, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERWARM_BUILD_JOBS", asked)
    assert native_library._build_jobs() == jobs


def test_flags_from_outside_never_reach_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-march=native")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=ON")
    environment = native_library._clean_environment({"CMAKE_ARGS": "-DLLAMA_BUILD=OFF"})
    assert "CXXFLAGS" not in environment
    assert environment["CMAKE_ARGS"] == "-DLLAMA_BUILD=OFF"


def test_the_installed_library_is_the_one_that_the_recipe_makes() -> None:
    folder = recorded_native_library(Path(sys.prefix))
    assert folder is not None
    assert why_not_usable(folder, RECIPE) is None
    assert bindings_wheel(folder).name.startswith(f"llama_cpp_python-{RECIPE.package.version}-")


def test_the_installed_library_loads_after_it_was_moved(tmp_path: Path) -> None:
    folder = recorded_native_library(Path(sys.prefix))
    assert folder is not None
    moved = shutil.copytree(folder, tmp_path / "moved", symlinks=True)
    command = [sys.executable, "-m", "installers.native_library_check", str(moved)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_without_backends_is_reported(tmp_path: Path) -> None:
    folder = recorded_native_library(Path(sys.prefix))
    assert folder is not None
    moved = shutil.copytree(
        folder, tmp_path / "moved", symlinks=True, ignore=shutil.ignore_patterns("*ggml-cpu*")
    )
    command = [sys.executable, "-m", "installers.native_library_check", str(moved)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "no backend" in done.stderr
