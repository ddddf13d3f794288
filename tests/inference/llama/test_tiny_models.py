"""The tiny models load and run in the native library, each with the kind of memory it is made for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from inference.llama.native_library import load_native_library
from tests.tiny_models import (
    TinyModel,
    vocabulary,
    write_hybrid,
    write_llama,
    write_mamba,
    write_sliding_window,
)

Logits = npt.NDArray[np.float32]

KINDS: dict[str, Callable[[Path], Path]] = {
    "multi-head": lambda path: write_llama(path, n_head_kv=4),
    "grouped-query": lambda path: write_llama(path, n_head_kv=2),
    "multi-query": lambda path: write_llama(path, n_head_kv=1),
    "sliding-window": write_sliding_window,
    "recurrent": write_mamba,
    "hybrid": write_hybrid,
}
every_kind = pytest.mark.parametrize("write", KINDS.values(), ids=KINDS.keys())
PROMPT = [3 + 7 * number % 256 for number in range(100)]


@pytest.fixture(scope="module")
def llama() -> ModuleType:
    return load_native_library()


@contextmanager
def loaded(llama: ModuleType, path: Path) -> Iterator[int]:
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(str(path).encode(), params)
    assert model is not None
    try:
        yield model
    finally:
        llama.llama_model_free(model)


@contextmanager
def new_context(llama: ModuleType, model: int, **options: object) -> Iterator[int]:
    params = llama.llama_context_default_params()
    params.n_ctx = 512
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.swa_full = False
    for name, value in options.items():
        setattr(params, name, value)
    context = llama.llama_init_from_model(model, params)
    assert context is not None
    try:
        yield context
    finally:
        llama.llama_free(context)


def decode(llama: ModuleType, context: int, token_ids: Sequence[int]) -> Logits:
    """Logits behind the last of the tokens, which follow those decoded before."""
    tokens = (llama.llama_token * len(token_ids))(*token_ids)
    assert llama.llama_decode(context, llama.llama_batch_get_one(tokens, len(token_ids))) == 0
    return np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (len(vocabulary()),)).copy()


@every_kind
def test_a_tiny_model_writes_40_tokens_with_finite_logits(
    llama: ModuleType, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    with loaded(llama, write(tmp_path / "model.gguf")) as model, new_context(llama, model) as context:
        logits = decode(llama, context, PROMPT)
        for _ in range(40):
            assert np.all(np.isfinite(logits))
            assert np.std(logits) > 0.5
            logits = decode(llama, context, [int(np.argmax(logits))])


@every_kind
def test_the_logits_of_a_tiny_model_depend_on_tokens_read_before(
    llama: ModuleType, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    with loaded(llama, write(tmp_path / "model.gguf")) as model:
        with new_context(llama, model) as context:
            logits = decode(llama, context, PROMPT)
        with new_context(llama, model) as context:
            other = decode(llama, context, [*PROMPT[:70], 5, *PROMPT[71:]])
    assert np.max(np.abs(logits - other)) > 0.01


@every_kind
def test_a_tiny_model_is_small_and_equal_seeds_write_equal_bytes(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    first, second = write(tmp_path / "first.gguf"), write(tmp_path / "second.gguf")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 3_000_000


def test_another_seed_writes_other_weights(tmp_path: Path) -> None:
    first = write_llama(tmp_path / "first.gguf", TinyModel(seed=1))
    second = write_llama(tmp_path / "second.gguf", TinyModel(seed=2))
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize(
    ("kind", "is_recurrent", "is_hybrid", "n_swa"),
    [
        ("multi-head", False, False, 0),
        ("sliding-window", False, False, 64),
        ("recurrent", True, False, 0),
        ("hybrid", False, True, 0),
    ],
)
def test_the_library_sees_the_kind_of_memory_a_tiny_model_has(
    llama: ModuleType, tmp_path: Path, kind: str, is_recurrent: bool, is_hybrid: bool, n_swa: int
) -> None:
    with loaded(llama, KINDS[kind](tmp_path / "model.gguf")) as model:
        assert llama.llama_model_is_recurrent(model) is is_recurrent
        assert llama.llama_model_is_hybrid(model) is is_hybrid
        assert llama.llama_model_n_swa(model) == n_swa


@pytest.mark.parametrize(
    ("kind", "can_be_rewound"),
    [("multi-head", True), ("sliding-window", True), ("recurrent", False), ("hybrid", False)],
)
def test_only_recurrent_memory_cannot_give_up_its_last_token(
    llama: ModuleType, tmp_path: Path, kind: str, can_be_rewound: bool
) -> None:
    with loaded(llama, KINDS[kind](tmp_path / "model.gguf")) as model, new_context(llama, model) as context:
        decode(llama, context, PROMPT)
        memory = llama.llama_get_memory(context)
        assert llama.llama_memory_seq_rm(memory, 0, len(PROMPT) - 1, -1) is can_be_rewound


@every_kind
def test_a_restored_state_gives_identical_logits(
    llama: ModuleType, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    with loaded(llama, write(tmp_path / "model.gguf")) as model:
        with new_context(llama, model) as context:
            decode(llama, context, PROMPT)
            state = read_state(llama, context)
            expected = decode(llama, context, [7])
        with new_context(llama, model) as context:
            assert llama.llama_state_seq_set_data_ext(context, state, len(state), 0, 0) == len(state)
            assert np.array_equal(decode(llama, context, [7]), expected)


@pytest.mark.parametrize("kind", ["sliding-window", "recurrent", "hybrid"])
def test_a_partial_state_brings_back_what_cannot_be_rewound(
    llama: ModuleType, tmp_path: Path, kind: str
) -> None:
    partial_only = llama.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
    with (
        loaded(llama, KINDS[kind](tmp_path / "model.gguf")) as model,
        new_context(llama, model) as context,
    ):
        decode(llama, context, PROMPT)
        state = read_state(llama, context, partial_only)
        expected = decode(llama, context, [7])
        decode(llama, context, [11] * 20)
        assert llama.llama_state_seq_set_data_ext(context, state, len(state), 0, partial_only) == len(state)
        # The attention layers still hold the 21 tokens.
        assert llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, len(PROMPT), -1)
        assert np.array_equal(decode(llama, context, [7]), expected)


def read_state(llama: ModuleType, context: int, flags: int = 0) -> ctypes.Array[ctypes.c_uint8]:
    size = llama.llama_state_seq_get_size_ext(context, 0, flags)
    state = (ctypes.c_uint8 * size)()
    assert llama.llama_state_seq_get_data_ext(context, state, size, 0, flags) == size
    return state


@pytest.mark.parametrize("kind", ["multi-head", "multi-query", "sliding-window", "hybrid"])
@pytest.mark.parametrize("kv_type", ["GGML_TYPE_Q8_0", "GGML_TYPE_Q4_0"])
def test_a_tiny_model_runs_with_a_quantised_kv_cache(
    llama: ModuleType, tmp_path: Path, kind: str, kv_type: str
) -> None:
    quantised = {"type_k": getattr(llama, kv_type), "type_v": getattr(llama, kv_type)}
    with (
        loaded(llama, KINDS[kind](tmp_path / "model.gguf")) as model,
        new_context(llama, model, **quantised) as context,
    ):
        assert np.all(np.isfinite(decode(llama, context, PROMPT)))


def test_text_is_cut_into_words_bytes_and_special_tokens(llama: ModuleType, tmp_path: Path) -> None:
    tokens = vocabulary()
    with loaded(llama, write_llama(tmp_path / "model.gguf")) as model:
        text = "<|im_start|>hello the é".encode()
        found = (llama.llama_token * 64)()
        count = llama.llama_tokenize(
            llama.llama_model_get_vocab(model), text, len(text), found, 64, False, True
        )
    assert [tokens[token_id] for token_id in found[:count]] == [
        "<|im_start|>",
        "hello",
        "Ġthe",
        "Ġ",
        "Ã",
        "©",
    ]


@pytest.mark.parametrize("add_bos", [False, True])
def test_the_vocabulary_follows_the_options(llama: ModuleType, tmp_path: Path, add_bos: bool) -> None:
    path = write_llama(
        tmp_path / "model.gguf", TinyModel(add_bos=add_bos, eos_token="hello", context_length=99)
    )
    with loaded(llama, path) as model:
        vocab = llama.llama_model_get_vocab(model)
        assert llama.llama_vocab_n_tokens(vocab) == len(vocabulary())
        assert llama.llama_vocab_get_add_bos(vocab) is add_bos
        assert llama.llama_vocab_eos(vocab) == vocabulary().index("hello")
        assert llama.llama_vocab_is_eog(vocab, vocabulary().index("hello"))
        assert llama.llama_model_n_ctx_train(model) == 99
