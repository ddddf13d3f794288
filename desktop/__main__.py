"""python -m desktop: the window."""

from __future__ import annotations

import multiprocessing
import sys


def main() -> int:
    # Imported late, so that a helper process of a frozen app never loads Qt.
    multiprocessing.freeze_support()
    from desktop.app import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
