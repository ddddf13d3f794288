"""python -m installers.set_up [--dev]: make `.venv` ready to run Everwarm, or (--dev) to test and lint it too.

Every step is done once: a second call only looks, and says nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from installers.environment import (
    ROOT,
    VENV,
    ensure_environment,
    ensure_locked_packages,
    python_of,
    recorded_native_library,
)
from installers.errors import SetUpError
from installers.prerequisites import ensure_prerequisites, prerequisites


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m installers.set_up", description=__doc__)
    parser.add_argument("--dev", action="store_true", help="also install what tests and lint need")
    dev = parser.parse_args(arguments).dev
    try:
        native_library = recorded_native_library(VENV)
        may_build = native_library is None or not native_library.is_dir()
        ensure_prerequisites(prerequisites(build=may_build, tests=dev), os.environ)
        ensure_environment(VENV)
        ensure_locked_packages(VENV, dev=dev)
        # Its own process, since what follows needs packages that were only just installed.
        return subprocess.run(
            [str(python_of(VENV)), "-m", "installers.engine_set_up"], cwd=ROOT, check=False
        ).returncode
    except SetUpError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"\nSet-up could not go on: {error}. When that is mended, the same command goes on from here.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
