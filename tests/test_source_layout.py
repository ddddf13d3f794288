"""The rules of the code's layout that a reader would otherwise have to watch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE_LIMIT = 400
# A name that fits everything says nothing about what is inside.
BANNED_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}


def python_files() -> list[Path]:
    return [
        path
        for room in ("desktop", "inference", "installers", "tests")
        for path in (ROOT / room).rglob("*.py")
    ]


def run_in_root(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()
    }
    assert lengths
    assert {path: length for path, length in lengths.items() if length > LINE_LIMIT} == {}


def test_every_module_and_folder_is_named_after_what_it_holds() -> None:
    names = {part for path in python_files() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert sorted(name for name in names if BANNED_WORDS & set(name.split("_"))) == []


def test_importing_inference_loads_neither_qt_nor_the_native_library() -> None:
    code = "import sys, inference; print([name for name in sys.modules if name.split('.')[0] in {'PySide6', 'shiboken6', 'llama_cpp'}])"
    done = run_in_root(sys.executable, "-c", code)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_imports_run_one_way() -> None:
    done = run_in_root(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
