"""What the system must bring before Python packages can help: a compiler, Qt's libraries, a font, Xvfb."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from installers.errors import SetUpError

_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
_FONT_SUFFIXES = (".ttf", ".otf", ".ttc", ".pfb")

# What PySide6-Essentials 6.9 to 6.12 link to and do not bring: its core, and the plugin that talks to X11.
_QT_LIBRARIES: Mapping[str, str] = {
    "libGL.so.1": "libgl1",
    "libEGL.so.1": "libegl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libbrotlidec.so.1": "libbrotli1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}


@dataclass(frozen=True, slots=True)
class Prerequisite:
    package: str  # Debian's name
    is_present: Callable[[], bool]


def prerequisites(*, build: bool, tests: bool) -> list[Prerequisite]:
    """`build`: the native library may have to be built; `tests`: a real window must open without a screen."""
    wanted = [
        Prerequisite("python{}.{}-venv".format(*sys.version_info[:2]), partial(_has_module, "ensurepip"))
    ]
    if build and sys.platform != "win32":  # on Windows CMake finds its compiler in the registry
        wanted += [
            Prerequisite("gcc", partial(_has_command, "cc")),
            Prerequisite("g++", partial(_has_command, "c++")),
        ]
        wanted += [Prerequisite("make", lambda: _has_command("make") or _has_command("ninja"))]
    if build:
        wanted += [Prerequisite("cmake", partial(_has_command, "cmake"))]
    if sys.platform == "linux":
        wanted += [
            Prerequisite(package, partial(_has_library, name)) for name, package in _QT_LIBRARIES.items()
        ]
        wanted += [Prerequisite("fonts-dejavu-core", _has_font)]
    if tests and sys.platform == "linux":
        commands = {"xvfb": "Xvfb", "openbox": "openbox", "xdotool": "xdotool"}
        wanted += [Prerequisite(package, partial(_has_command, name)) for package, name in commands.items()]
    return wanted


def missing_packages(wanted: Sequence[Prerequisite]) -> list[str]:
    return [prerequisite.package for prerequisite in wanted if not prerequisite.is_present()]


def ensure_prerequisites(wanted: Sequence[Prerequisite], environ: Mapping[str, str]) -> None:
    """Install what is missing where that was asked for; else raise SetUpError with the line to type."""
    missing = missing_packages(wanted)
    if not missing:
        return
    if not _may_install(environ):
        raise SetUpError(message_for(missing))
    _install(missing)
    importlib.invalidate_caches()
    if still_missing := missing_packages(wanted):
        raise SetUpError(
            f"apt-get installed what was missing, yet these are not found: {' '.join(still_missing)}"
        )


def message_for(missing: Sequence[str]) -> str:
    packages = " ".join(missing)
    if shutil.which("apt-get") is None:
        return (
            f"This system lacks what Debian has in these packages; please install their like:\n  {packages}"
        )
    return f"These packages are missing. Please install them and run the same command again:\n  sudo apt install {packages}"


def _may_install(environ: Mapping[str, str]) -> bool:
    if shutil.which("apt-get") is None:
        return False
    return environ.get("EVERWARM_INSTALL_PACKAGES") == "1" or (environ.get("CI") == "true" and _is_root())


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _install(packages: Sequence[str]) -> None:
    prefix = [] if _is_root() else ["sudo"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"Installing Debian packages: {' '.join(packages)}", flush=True)
    for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        command = [*prefix, "apt-get", *arguments]
        try:
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetUpError(f"'{' '.join(command)}' failed: {error}\n{message_for(packages)}") from error


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _has_command(name: str) -> bool:
    return shutil.which(name) is not None


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _has_font() -> bool:
    folders = (Path(folder).expanduser() for folder in _FONT_FOLDERS)
    return any(
        name.endswith(_FONT_SUFFIXES) for folder in folders for *_, names in os.walk(folder) for name in names
    )
