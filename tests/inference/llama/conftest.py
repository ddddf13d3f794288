"""Contexts over real models, as many as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inference.llama.context import Context, ContextParams
from inference.llama.model import Model, load_model
from inference.llama.sequence import Sequence
from tests.tiny_models import write_multi_axis_rope


@pytest.fixture(scope="session")
def multi_axis_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_multi_axis_rope(tmp_path_factory.mktemp("multi-axis") / "model.gguf")


@pytest.fixture
def new_sequence() -> Iterator[Callable[..., Sequence]]:
    """new_sequence(path, n_ctx=..., n_threads=..., type_k=..., type_v=...): an empty sequence, and a model of its own as
    in another process; closed after the test."""
    opened: list[tuple[Context, Model]] = []

    def new_sequence(path: Path, n_ctx: int = 2048, n_threads: int = 1, **params: int) -> Sequence:
        model = load_model(path, 0, lambda _fraction: True)
        context = Context(model, ContextParams(n_ctx=n_ctx, n_threads=n_threads, **params))
        opened.append((context, model))
        return context.sequences[0]

    yield new_sequence
    for context, model in opened:
        context.close()
        model.close()
