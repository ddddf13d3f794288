from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installers.errors import SetUpError
from installers.logged_command import run_logged


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_of_every_command_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "set-up.log"
    run_logged(python("print('one')"), log, doing="First")
    run_logged(python("import sys; print('two', file=sys.stderr)"), log, doing="Second")
    lines = log.read_text().splitlines()
    assert lines.index("one") < lines.index("two")


def test_each_line_is_shown_to_the_caller(tmp_path: Path) -> None:
    lines: list[str] = []
    run_logged(python("print('a'); print('b')"), tmp_path / "log", doing="Counting", on_line=lines.append)
    assert lines == ["a\n", "b\n"]


def test_a_failure_says_what_failed_what_to_do_and_where_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SetUpError) as failed:
        run_logged(python("raise SystemExit(3)"), log, doing="Building", remedy="Install a compiler.")
    assert str(failed.value) == f"Building failed. Install a compiler.\nLog: {log}"


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("cc1plus: error: No space left on device", "disk is full"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "EVERWARM_BUILD_JOBS=1"),
        ("ERROR: Could not find a version that satisfies the requirement", "check the network"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "not the file that was pinned"),
        ("error: [Errno 13] Permission denied: '/cache'", "may not be written"),
    ],
)
def test_a_known_cause_in_the_output_decides_the_advice(tmp_path: Path, output: str, advice: str) -> None:
    with pytest.raises(SetUpError, match=advice):
        run_logged(python(f"print({output!r}); raise SystemExit(1)"), tmp_path / "log", doing="Building")


def test_an_earlier_command_in_the_same_log_does_not_decide_the_advice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_logged(python("print('No space left on device')"), log, doing="Measuring")
    with pytest.raises(SetUpError, match="Install a compiler"):
        run_logged(python("raise SystemExit(1)"), log, doing="Building", remedy="Install a compiler.")


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetUpError, match="no-such-command could not be started"):
        run_logged(["no-such-command"], tmp_path / "log", doing="Building")
