from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from installers.environment import ROOT
from installers.pinned_package import LLAMA_CPP_PYTHON

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)(.*)", re.MULTILINE)


def locked_versions(name: str) -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for package, version, _ in _PIN.findall((ROOT / name).read_text(encoding="utf-8")):
        versions.setdefault(canonicalize_name(package), set()).add(version)
    return versions


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def unlocked(requirements: list[str], versions: dict[str, set[str]]) -> list[str]:
    wanted = [Requirement(text) for text in requirements]
    return [
        str(requirement)
        for requirement in wanted
        if canonicalize_name(requirement.name) != LLAMA_CPP_PYTHON.name
        and not any(
            requirement.specifier.contains(v) for v in versions.get(canonicalize_name(requirement.name), ())
        )
    ]


def test_the_lock_holds_what_pyproject_asks_for(pyproject: dict[str, Any]) -> None:
    assert unlocked(pyproject["project"]["dependencies"], locked_versions("requirements.lock")) == []


def test_the_dev_lock_holds_the_dev_group(pyproject: dict[str, Any]) -> None:
    assert unlocked(pyproject["dependency-groups"]["dev"], locked_versions("requirements-dev.lock")) == []


def test_both_locks_agree_on_every_version() -> None:
    run, dev = locked_versions("requirements.lock"), locked_versions("requirements-dev.lock")
    assert {name: dev.get(name) for name in run} == run


def test_the_bindings_are_pinned_to_the_version_that_pyproject_names(pyproject: dict[str, Any]) -> None:
    assert f"{LLAMA_CPP_PYTHON.name}=={LLAMA_CPP_PYTHON.version}" in pyproject["project"]["dependencies"]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_have_a_hash_for_every_package_and_name_no_index(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = _PIN.findall(text)
    assert pins
    assert [package for package, _, rest in pins if not rest.endswith("\\")] == []
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_pip_never_builds_the_native_library_from_a_lock(name: str) -> None:
    assert LLAMA_CPP_PYTHON.name not in locked_versions(name)
