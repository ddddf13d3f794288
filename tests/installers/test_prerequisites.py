from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from installers import prerequisites as module
from installers.errors import SetUpError
from installers.prerequisites import Prerequisite, ensure_prerequisites, missing_packages, prerequisites


class ScriptedApt:
    """Stands in for apt-get: records what it was asked for; `repairs` says whether that helped."""

    def __init__(self, repairs: bool = True) -> None:
        self.repairs = repairs
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], **options: Any) -> None:
        self.commands.append(list(command))

    def installed(self) -> bool:
        return self.repairs and any("install" in command for command in self.commands)


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> ScriptedApt:
    apt = ScriptedApt()
    monkeypatch.setattr("installers.prerequisites.subprocess.run", apt)
    monkeypatch.setattr("installers.prerequisites.shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module, "_is_root", lambda: True)
    return apt


def test_nothing_missing_says_nothing_and_installs_nothing(apt: ScriptedApt) -> None:
    ensure_prerequisites([Prerequisite("cmake", lambda: True)], {"CI": "true"})
    assert apt.commands == []


def test_a_person_gets_one_line_with_every_missing_package(apt: ScriptedApt) -> None:
    wanted = [
        Prerequisite("libgl1", lambda: False),
        Prerequisite("cmake", lambda: True),
        Prerequisite("xvfb", lambda: False),
    ]
    with pytest.raises(SetUpError) as refused:
        ensure_prerequisites(wanted, {})
    assert str(refused.value).splitlines()[-1].strip() == "sudo apt install libgl1 xvfb"
    assert apt.commands == []


@pytest.mark.parametrize("environ", [{"CI": "true"}, {"EVERWARM_INSTALL_PACKAGES": "1"}])
def test_root_in_ci_or_on_request_updates_the_lists_and_installs(
    apt: ScriptedApt, environ: dict[str, str]
) -> None:
    ensure_prerequisites([Prerequisite("libgl1", apt.installed)], environ)
    update, install = apt.commands
    assert update[:2] == ["apt-get", "update"]
    assert install[:2] == ["apt-get", "install"]
    assert install[-1] == "libgl1"


def test_ci_without_root_only_tells(apt: ScriptedApt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_root", lambda: False)
    with pytest.raises(SetUpError, match="sudo apt install libgl1"):
        ensure_prerequisites([Prerequisite("libgl1", apt.installed)], {"CI": "true"})
    assert apt.commands == []


def test_a_request_without_root_goes_through_sudo(apt: ScriptedApt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_root", lambda: False)
    ensure_prerequisites([Prerequisite("libgl1", apt.installed)], {"EVERWARM_INSTALL_PACKAGES": "1"})
    assert [command[0] for command in apt.commands] == ["sudo", "sudo"]


def test_an_installation_that_did_not_help_is_reported(apt: ScriptedApt) -> None:
    apt.repairs = False
    with pytest.raises(SetUpError, match="not found: libgl1"):
        ensure_prerequisites([Prerequisite("libgl1", apt.installed)], {"CI": "true"})


def test_other_systems_are_told_what_debian_calls_it(
    apt: ScriptedApt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("installers.prerequisites.shutil.which", lambda name: None)
    with pytest.raises(SetUpError, match=r"Debian has in these packages.*\n  libgl1"):
        ensure_prerequisites([Prerequisite("libgl1", lambda: False)], {"CI": "true"})


def test_a_compiler_is_wanted_only_when_something_may_be_built() -> None:
    build_only = {p.package for p in prerequisites(build=True, tests=False)} - {
        p.package for p in prerequisites(build=False, tests=False)
    }
    assert build_only == {"gcc", "g++", "make", "cmake"}


def test_a_window_server_is_wanted_only_for_tests() -> None:
    tests_only = {p.package for p in prerequisites(build=False, tests=True)} - {
        p.package for p in prerequisites(build=False, tests=False)
    }
    assert tests_only == {"xvfb", "openbox", "xdotool"}


def test_what_this_test_run_stands_on_is_found() -> None:
    assert missing_packages(prerequisites(build=True, tests=True)) == []


def test_commands_libraries_modules_and_fonts_that_are_not_there_are_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_FONT_FOLDERS", (str(tmp_path),))
    assert shutil.which("no-such-command") is None
    assert not module._has_command("no-such-command")
    assert not module._has_library("libno-such-library.so.1")
    assert not module._has_module("no_such_module")
    assert not module._has_font()
