"""State that was stored by another model file, library build or setting is a miss before the library sees it, and stays.

Reported as nomic-ai/gpt4all PR #1742, netdur/llama_cpp_dart#96, gianlucamazza/xllama PR #186: the library's own check
covers the shape only, so what another quantisation or fine-tune of the same shape left is loaded and gives garbage.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from inference import loaded_model
from inference.kvcache.block import folder_name
from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.llama import context as context_module
from inference.llama.context import Context, ContextParams
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import GenerationRequest
from tests.inference.lone_run import run_alone
from tests.inference.stored_chats import let_restoring_pay, request
from tests.tiny_models import CHATML, TinyModel, write_llama

PROMPT = "bdgkq" * 60
PARAMS = ContextParams(n_ctx=512)
ORIGINAL_CONTEXT = 1024
Change = Callable[[Path, pytest.MonkeyPatch], tuple[Path, ContextParams]]


class Desk:
    """One model at a time over one store, as if each were opened by a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(
        self, path: Path, params: ContextParams = PARAMS, asked: GenerationRequest | None = None
    ) -> ReplyRun:
        digests = ModelDigests(self.folder / "model-digests.json")
        loaded = LoadedModel(ModelConfig(str(path), n_threads=1), digests, lambda _fraction: True, params)
        fingerprint = loaded.fingerprint()
        assert fingerprint is not None
        let_restoring_pay(self.folder, fingerprint)
        store = BlockStore(self.folder, 10**9, on_notice=pytest.fail)
        run = run_alone(asked or request(PROMPT), loaded, store)
        store.close(30)
        loaded.close()
        self.last_folder = self.folder / folder_name(fingerprint)
        return run


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "kv").mkdir()
    return Desk(tmp_path / "kv")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "model.gguf", n_head_kv=2)


def other_quantisation(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    add_tensor = gguf.GGUFWriter.add_tensor

    def add_quantised(writer: gguf.GGUFWriter, name: str, tensor: Any) -> None:
        if tensor.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            add_tensor(writer, name, quantize(np.asarray(tensor), kind), raw_dtype=kind)
        else:
            add_tensor(writer, name, tensor)

    with monkeypatch.context() as patched:
        patched.setattr(gguf.GGUFWriter, "add_tensor", add_quantised)
        return write_llama(path.with_name("quantised.gguf"), n_head_kv=2), PARAMS


def fine_tune(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    return write_llama(path.with_name("tuned.gguf"), TinyModel(seed=1), n_head_kv=2), PARAMS


def write_with(path: Path, monkeypatch: pytest.MonkeyPatch, add: Callable[[gguf.GGUFWriter], None]) -> Path:
    """The same model with more metadata."""
    add_name = gguf.GGUFWriter.add_name

    def add_name_and_more(writer: gguf.GGUFWriter, name: str) -> None:
        add_name(writer, name)
        add(writer)

    with monkeypatch.context() as patched:
        patched.setattr(gguf.GGUFWriter, "add_name", add_name_and_more)
        return write_llama(path, n_head_kv=2)


def rope_scale(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(2.0)

    return write_with(path.with_name("scaled.gguf"), monkeypatch, add), PARAMS


def quantised_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    kind = int(gguf.GGMLQuantizationType.Q8_0)
    return path, replace(PARAMS, type_k=kind, type_v=kind)


def no_flash_attention(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    monkeypatch.setattr(context_module, "_FLASH_ATTENTION_ON", 0)
    return path, PARAMS


def other_build(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ContextParams]:
    monkeypatch.setattr(loaded_model, "library_build", lambda: "llama-cpp-python 0.3.37")
    return path, PARAMS


CHANGES: list[Change] = [
    other_quantisation,
    fine_tune,
    rope_scale,
    quantised_rows,
    no_flash_attention,
    other_build,
]


@pytest.fixture
def states_given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The size of every state that the library is handed."""
    given: list[int] = []
    write_state_of = Context.write_state_of

    def noted(context: Context, state: Any, seq_id: int, flags: int) -> bool:
        given.append(state.size)
        return write_state_of(context, state, seq_id, flags)

    with monkeypatch.context() as patched:
        patched.setattr(Context, "write_state_of", noted)
        yield given


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("moved", [False, True], ids=["beside it", "files put into its folder"])
def test_what_means_something_else_is_a_miss_before_the_library_sees_it(
    desk: Desk,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    states_given: list[int],
    change: Change,
    moved: bool,
) -> None:
    cold = desk.ask(model)
    written, written_files = desk.last_folder, {p.name: p.read_bytes() for p in desk.last_folder.iterdir()}
    with monkeypatch.context() as changed:
        path, params = change(model, changed)
        if moved:
            # A folder's name is half a fingerprint; each file holds all of it.
            desk.ask(path, params, request("x"))
            shutil.copytree(written, desk.last_folder, dirs_exist_ok=True)
        other = desk.ask(path, params)
        assert desk.last_folder != written
    assert (other.counts.restored_tokens, other.counts.prefilled_tokens) == (0, len(PROMPT))
    assert states_given == []
    assert written_files == {p.name: p.read_bytes() for p in written.iterdir()}
    again = desk.ask(model)
    assert again.counts.restored_tokens == len(PROMPT) - 1
    assert again.generated_ids == cold.generated_ids
    assert states_given


def test_another_context_length_is_a_hit(desk: Desk, model: Path) -> None:
    desk.ask(model)
    assert desk.ask(model, replace(PARAMS, n_ctx=1024, n_ubatch=64)).counts.prefilled_tokens == 1


def test_another_template_that_writes_the_same_ids_is_a_hit(desk: Desk, model: Path) -> None:
    asked = replace(request([Message("user", PROMPT)]), chat_template=CHATML)
    desk.ask(model, asked=asked)
    again = desk.ask(model, asked=replace(asked, chat_template="{# another #}" + CHATML))
    assert again.counts.prefilled_tokens == 1


@pytest.mark.parametrize(
    ("n_ctx", "is_hit"),
    [(ORIGINAL_CONTEXT // 2, True), (ORIGINAL_CONTEXT, True), (2 * ORIGINAL_CONTEXT, False)],
)
def test_the_context_length_counts_where_it_chooses_other_rope_factors(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_ctx: int, is_hit: bool
) -> None:
    model = write_with(
        tmp_path / "two sets.gguf",
        monkeypatch,
        lambda writer: writer.add_rope_scaling_orig_ctx_len(ORIGINAL_CONTEXT),
    )
    desk.ask(model)
    assert (desk.ask(model, replace(PARAMS, n_ctx=n_ctx)).counts.prefilled_tokens == 1) == is_hit
