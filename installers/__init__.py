"""Makes a working copy of Everwarm out of a fresh clone. Standard library only, until `.venv` exists."""

import sys

if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit(
        "Everwarm needs Python 3.11, 3.12 or 3.13; this is {}.{} ({}).\n"
        "Name another one, for example: make run PYTHON=python3.12".format(
            *sys.version_info[:2], sys.executable
        )
    )
