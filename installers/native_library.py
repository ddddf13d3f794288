"""Builds the native library once per user and keeps it in the cache; a second clone finds it there.

The folder holds llama.cpp's shared libraries with every CPU variant, the wheel of the Python bindings that
belong to them, and a manifest. It is built beside its final place and renamed at the end, so an interrupted
build is never taken. Files find each other by a relative RUNPATH, so the folder may be moved.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import platformdirs

from installers.environment import NATIVE_LIBRARY_MARKER, recorded_native_library
from installers.errors import SetUpError
from installers.logged_command import run_logged
from installers.native_recipe import NativeRecipe, compiler_in_use, why_not_usable, write_manifest
from installers.pinned_package import run_pip

_BUILDING_PREFIX = ".building-"
_ABANDONED_AFTER_S = 24 * 3600
_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")
# Flags that would reach CMake past the recipe and make another library under the same name.
_FLAG_VARIABLES = (
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CMAKE_ARGS",
    "CMAKE_BUILD_TYPE",
    "CMAKE_GENERATOR",
)


def cache_root() -> Path:
    replacement = os.environ.get("EVERWARM_CACHE_DIR")
    return (
        Path(replacement).absolute() if replacement else Path(platformdirs.user_cache_dir("everwarm", False))
    )


def ensure_native_library(recipe: NativeRecipe, prefix: Path, cache: Path) -> Path:
    """The folder of a usable build, recorded at `prefix`; builds it (minutes) when the cache has none."""
    recorded = recorded_native_library(prefix)
    # What this environment already uses stays in use when only the compiler was upgraded since.
    if recorded is not None and why_not_usable(recorded, recipe) is None:
        return recorded
    compiler = compiler_in_use()
    folder = cache / "native" / recipe.folder_name(compiler)
    reason = why_not_usable(folder, recipe)
    if reason is not None:
        if folder.exists():
            print(f"The native library in {folder} is built again: {reason}.", flush=True)
        build_native_library(recipe, compiler, folder, cache / "logs" / f"{folder.name}.log")
    (prefix / NATIVE_LIBRARY_MARKER).write_text(f"{folder}\n", encoding="utf-8")
    return folder


def bindings_wheel(folder: Path) -> Path:
    """The wheel that was built with the libraries in `folder`."""
    [wheel] = folder.glob("*.whl")
    return wheel


def build_native_library(recipe: NativeRecipe, compiler: str, folder: Path, log: Path) -> None:
    """Download, build, check and put in place at `folder`, replacing what is there."""
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _remove_abandoned_builds(folder.parent)
    with tempfile.TemporaryDirectory(prefix=_BUILDING_PREFIX, dir=folder.parent) as building:
        work = Path(building)
        stage = work / "stage"
        stage.mkdir()
        print(f"Downloading the source of {recipe.package.name} {recipe.package.version} …", flush=True)
        sdist = download_sdist(recipe, work, log)
        _build_bindings(sdist, stage, log)
        print(
            f"Building the native library, once for this user (about 5 minutes on 2 cores) …\n  log: {log}",
            flush=True,
        )
        compile_targets(recipe, unpack_source(sdist, work / "source"), work / "build", log, ["llama"])
        _collect_libraries(work / "build", stage)
        _check_that_it_loads(stage, log)
        write_manifest(stage, recipe, compiler)
        _put_in_place(stage, folder, work)
    log.unlink()  # 16 MB of compiler warnings, of use only when a build failed
    print(f"Built in {time.monotonic() - started:.0f} s: {folder}", flush=True)


def _remove_abandoned_builds(parent: Path) -> None:
    for path in parent.glob(f"{_BUILDING_PREFIX}*"):
        # A younger one may belong to a set-up that is at work now.
        if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)


def download_sdist(recipe: NativeRecipe, work: Path, log: Path) -> Path:
    options = ["--no-binary", recipe.package.name, "--dest", str(work)]
    run_pip("download", recipe.package, options, log, doing=f"Downloading {recipe.package.name}")
    [sdist] = work.glob("*.tar.gz")
    return sdist


def _build_bindings(sdist: Path, stage: Path, log: Path) -> None:
    # Never through pip's wheel cache: its key ignores CMAKE_ARGS, so it may hold libraries made for one CPU.
    run_logged(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-cache-dir",
            "--wheel-dir",
            str(stage),
            str(sdist),
        ],
        log,
        doing="Building the Python bindings",
        env=_clean_environment({"CMAKE_ARGS": "-DLLAMA_BUILD=OFF"}),
    )
    with zipfile.ZipFile(bindings_wheel(stage)) as wheel:
        carried = [name for name in wheel.namelist() if name.endswith(_LIBRARY_SUFFIXES)]
    if carried:
        raise SetUpError(
            f"The bindings came with native libraries of their own ({carried[0]}), which is never used."
        )


def unpack_source(sdist: Path, destination: Path) -> Path:
    shutil.unpack_archive(sdist, destination)
    [source] = destination.glob("*/vendor/llama.cpp")
    return source


def compile_targets(
    recipe: NativeRecipe, source: Path, build: Path, log: Path, targets: Sequence[str]
) -> None:
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    flags = {**recipe.flags, "CMAKE_INSTALL_RPATH": origin, "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON"}
    generator = ["-G", "Ninja"] if shutil.which("ninja") and sys.platform != "win32" else []
    environment = _clean_environment({})
    remedy = "The log's last lines say why; a compiler with C++17 and CMake 3.21 or newer are needed."
    run_logged(
        [
            "cmake",
            "-S",
            str(source),
            "-B",
            str(build),
            *generator,
            *(f"-D{key}={flags[key]}" for key in sorted(flags)),
        ],
        log,
        doing="Configuring the native library",
        remedy=remedy,
        env=environment,
    )
    run_logged(
        [
            "cmake",
            "--build",
            str(build),
            "--config",
            "Release",
            "--target",
            *targets,
            "--parallel",
            str(_build_jobs()),
        ],
        log,
        doing="Building the native library",
        remedy=remedy,
        env=environment,
        on_line=_ProgressPrinter(),
    )


def _build_jobs() -> int:
    chosen = os.environ.get("EVERWARM_BUILD_JOBS")
    if chosen:
        return max(1, int(chosen)) if chosen.isdecimal() else 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _clean_environment(additions: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _FLAG_VARIABLES} | dict(additions)


class _ProgressPrinter:
    """Prints every tenth of the build, from Ninja's "[12/310]" or Make's "[ 42%]"."""

    _PROGRESS = re.compile(r"\[\s*(\d+)(?:/(\d+)|%)\]")

    def __init__(self) -> None:
        self._printed_percent = 0

    def __call__(self, line: str) -> None:
        match = self._PROGRESS.match(line)
        if match is None:
            return
        done, total = int(match[1]), int(match[2] or 100)
        percent = 100 * done // total // 10 * 10
        if percent > self._printed_percent:
            self._printed_percent = percent
            print(f"  {percent} %", flush=True)


def _built_libraries(build: Path) -> Iterator[Path]:
    for path in sorted((build / "bin").rglob("*")):
        # libllama.so is a link to libllama.so.0, which is a link to the file: all three are needed.
        if path.is_file() and any(suffix in _LIBRARY_SUFFIXES for suffix in path.suffixes):
            yield path


def _collect_libraries(build: Path, stage: Path) -> None:
    for path in _built_libraries(build):
        shutil.copy2(path, stage / path.name, follow_symlinks=False)


def _check_that_it_loads(stage: Path, log: Path) -> None:
    # In a process of its own, because a wrong build may end it.
    run_logged(
        [sys.executable, "-m", "installers.native_library_check", str(stage)],
        log,
        doing="Loading the library that was just built",
        remedy="Please report this with the log.",
    )


def _put_in_place(stage: Path, folder: Path, work: Path) -> None:
    if folder.exists():
        os.rename(folder, work / "replaced")
    try:
        os.rename(stage, folder)
    except OSError as error:
        raise SetUpError(
            f"{folder} could not be put in place ({error.strerror}): is another set-up running? Run the command again."
        ) from error
