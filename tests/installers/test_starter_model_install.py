from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from desktop.starter_model import find_starter_model
from installers import starter_model
from installers.environment import Stamps
from installers.errors import SetUpError
from installers.starter_model import MODEL_BYTES, MODEL_SHA256, ensure_starter_model, has_sha256


def refuse_pip(*arguments: Any, **options: Any) -> None:
    raise SetUpError("pip was called")


def test_the_installed_model_has_the_pinned_content() -> None:
    path = find_starter_model()
    assert path is not None
    assert path.stat().st_size == MODEL_BYTES
    assert has_sha256(path, MODEL_SHA256)


def test_an_installed_model_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter_model, "run_pip", refuse_pip)
    stamps = Stamps(tmp_path / "stamps.json")
    stamps.record("starter-model", MODEL_SHA256)
    assert ensure_starter_model(stamps, tmp_path / "log") == find_starter_model()


def test_a_model_cut_short_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = tmp_path / "model.gguf"
    cut.write_bytes(b"GGUF")
    stamps = Stamps(tmp_path / "stamps.json")
    stamps.record("starter-model", MODEL_SHA256)
    monkeypatch.setattr(starter_model, "find_starter_model", lambda: cut)
    monkeypatch.setattr(starter_model, "run_pip", refuse_pip)
    with pytest.raises(SetUpError, match="pip was called"):
        ensure_starter_model(stamps, tmp_path / "log")


def test_a_package_with_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF")
    stamps = Stamps(tmp_path / "stamps.json")
    monkeypatch.setattr(starter_model, "find_starter_model", lambda: other)
    monkeypatch.setattr(starter_model, "run_pip", lambda *arguments, **options: None)
    with pytest.raises(SetUpError, match="did not bring the starter model"):
        ensure_starter_model(stamps, tmp_path / "log")
    assert not stamps.is_current("starter-model", MODEL_SHA256)
