"""What makes two builds of the native library the same, and the folder name and manifest that say so."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from installers.pinned_package import LLAMA_CPP_PYTHON, PinnedPackage

MANIFEST_NAME = "manifest.json"

# One file per CPU generation, chosen when the library loads: never made for the CPU that built it.
CMAKE_FLAGS: Mapping[str, str] = {
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_BACKEND_DL": "ON",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "GGML_NATIVE": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_COMMON": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
}


@dataclass(frozen=True, slots=True)
class NativeRecipe:
    """`system` is like "linux-x86_64"; `tag` is what a person reads in the folder's name."""

    package: PinnedPackage
    flags: Mapping[str, str]
    system: str
    tag: str

    def folder_name(self, compiler: str) -> str:
        digest = hashlib.sha256(json.dumps([self.as_json(), compiler], sort_keys=True).encode()).hexdigest()
        return f"{self.package.name}-{self.package.version}-{digest[:10]}-{self.tag}"

    def as_json(self) -> dict[str, Any]:
        return {"package": asdict(self.package), "flags": dict(self.flags), "system": self.system}


def recipe_for_this_system() -> NativeRecipe:
    system = f"{sys.platform}-{platform.machine().lower()}"
    return NativeRecipe(LLAMA_CPP_PYTHON, CMAKE_FLAGS, system, "cpu-variants")


def compiler_in_use() -> str:
    """Family and major version, like "gcc-12": a new patch release builds the same thing."""
    compiler = os.environ.get("CXX", "c++")
    try:
        major = _output_of(compiler, "-dumpversion").strip().partition(".")[0]
        family = "clang" if "clang" in _output_of(compiler, "--version").lower() else "gcc"
    except (OSError, subprocess.CalledProcessError):
        return "cmake-default"  # MSVC is found by CMake itself
    return f"{family}-{major}"


def _output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write_manifest(folder: Path, recipe: NativeRecipe, compiler: str) -> None:
    """Say what `folder` holds. Symbolic links (sonames) are recorded by their target."""
    manifest = {"recipe": recipe.as_json(), "compiler": compiler, "files": _describe_files(folder)}
    (folder / MANIFEST_NAME).write_text(
        json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


def why_not_usable(folder: Path, recipe: NativeRecipe) -> str | None:
    """None when `folder` holds exactly what its manifest says, built as `recipe` says; else the reason."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        recorded_recipe, recorded_files = manifest["recipe"], manifest["files"]
    except FileNotFoundError:
        return "it is not there" if not folder.is_dir() else "it has no manifest"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its manifest cannot be read ({error})"
    if recorded_recipe != recipe.as_json():
        return "it was built from another version or with other flags"
    if recorded_files != _describe_files(folder):
        return "its files are not those that were built"
    return None


def _describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: _describe(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST_NAME}


def _describe(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        return {"link": os.readlink(path)}
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
