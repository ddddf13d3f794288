"""What a GGUF file says about its model, checked before the native library sees the file.

The library ends the process on some files, so whatever it asserts about a header is refused here with a reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gguf.constants import (
    GGML_QUANT_SIZES,
    GGMLQuantizationType,
    GGUFType,
    Keys,
    LlamaFileType,
    RopeScalingType,
)

from inference.llama.gguf_bytes import InvalidGGUF, ModelFileMissing
from inference.llama.gguf_file import GGUFArray, GGUFFile, Metadata, Scalar, read_gguf_file, read_integers

__all__ = [
    "GGUFArray",
    "GGUFHeader",
    "InvalidGGUF",
    "ModelFileMissing",
    "kv_bytes_per_token",
    "read_gguf_header",
]

PerLayer = int | tuple[int, ...]

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
MAX_DIMENSION = 2**31 - 1
MAX_PARTS = 1_000

OTHER_MODEL = "choose another model"


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """A chat model as its file describes it. Lengths are in tokens, sizes in elements.

    parts: every file of the model, path first. size_bytes, num_params: of all parts together.
    quantisation: of most weights, e.g. "Q4_1". head_count, head_count_kv: one for all layers or one a layer; 0: a
    layer without attention. sliding_window: None where every layer sees the whole context.
    chat_templates: jinja by name; the one without a name is "default". add_bos: None where the file leaves it to
    the tokenizer. metadata: all scalars; of an array only type and length; strings over 1 MiB are left out.
    """

    path: Path
    parts: tuple[Path, ...]
    version: int
    size_bytes: int
    num_params: int
    architecture: str
    name: str
    quantisation: str
    licence: str | None
    context_length: int
    embedding_length: int
    block_count: int
    head_count: PerLayer
    head_count_kv: PerLayer
    head_size_k: int
    head_size_v: int
    sliding_window: int | None
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    add_bos: bool | None
    chat_templates: Mapping[str, str]
    metadata: Mapping[str, Scalar | GGUFArray]


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read and check the header of a chat model, and those of its other parts where it has several.

    Raises ModelFileMissing (no file there) or InvalidGGUF (anything else), and no other exception.
    """
    first = read_gguf_file(path)
    _check_is_chat_model(first)
    files = [first, *_read_other_parts(first)]
    elements_by_type = sum((file.elements_by_type for file in files), Counter[str]())
    if not elements_by_type:
        raise first.error("holds a vocabulary but no model", OTHER_MODEL)
    _check_parts_belong_together(files)
    return _header(first, files, elements_by_type)


def kv_bytes_per_token(header: GGUFHeader, type_k: GGMLQuantizationType, type_v: GGMLQuantizationType) -> int:
    """Bytes of KV cache that one token takes in all layers together.

    An upper bound: a sliding window keeps fewer tokens, and some hybrids do not say which layers have attention.
    """
    heads = header.head_count_kv
    num_heads = heads * header.block_count if isinstance(heads, int) else sum(heads)
    return num_heads * (_row_bytes(header.head_size_k, type_k) + _row_bytes(header.head_size_v, type_v))


def _row_bytes(num_elements: int, tensor_type: GGMLQuantizationType) -> int:
    block_elements, block_bytes = GGML_QUANT_SIZES[tensor_type]
    return int(-(-num_elements // block_elements) * block_bytes)


def _check_is_chat_model(gguf: GGUFFile) -> None:
    metadata = gguf.metadata
    architecture = metadata.get(Keys.General.ARCHITECTURE)
    kind = metadata.get(Keys.General.TYPE, GGUFType.MODEL)
    if architecture == "clip" or kind == GGUFType.MMPROJ:
        raise gguf.error(
            "is the image or sound part of a model, not a chat model", "choose its main .gguf file"
        )
    if kind != GGUFType.MODEL:
        what = kind if isinstance(kind, str) and kind.isidentifier() and len(kind) < 32 else "unknown"
        raise gguf.error(f"is not a chat model (its kind is {what})", OTHER_MODEL)
    if not isinstance(architecture, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,63}", architecture):
        raise gguf.error("does not say which architecture it has, so it is damaged or not a chat model")
    if metadata.get(Keys.Attention.CAUSAL.format(arch=architecture)) is False:
        raise gguf.error("does not write text from left to right, so it is not a chat model", OTHER_MODEL)
    tokens = metadata.get(Keys.Tokenizer.LIST)
    if metadata.get(Keys.Tokenizer.MODEL) in (None, "none", "no_vocab") or not isinstance(tokens, GGUFArray):
        raise gguf.error("has no tokenizer, so it is not a chat model", OTHER_MODEL)
    if tokens.item_type != "string" or tokens.count == 0:
        raise gguf.error("has an empty vocabulary")


def _header(gguf: GGUFFile, files: list[GGUFFile], elements_by_type: Counter[str]) -> GGUFHeader:
    metadata = gguf.metadata
    architecture = str(metadata[Keys.General.ARCHITECTURE])
    tokens = metadata[Keys.Tokenizer.LIST]
    assert isinstance(tokens, GGUFArray)

    def key(template: str) -> str:
        return template.format(arch=architecture)

    block_count = _positive(gguf, key(Keys.LLM.BLOCK_COUNT), MAX_LAYERS)
    embedding_length = _positive(gguf, key(Keys.LLM.EMBEDDING_LENGTH))
    head_count = _per_layer(gguf, key(Keys.Attention.HEAD_COUNT), block_count, default=0)
    max_head_count = head_count if isinstance(head_count, int) else max(head_count)
    if max_head_count == 0 and not {key(Keys.SSM.STATE_SIZE), key(Keys.WKV.HEAD_SIZE)} & metadata.keys():
        raise gguf.error(f"has no attention heads ({key(Keys.Attention.HEAD_COUNT)} is 0)")
    head_size = embedding_length // max_head_count if max_head_count else 0
    _check_experts(gguf, architecture)
    _check_rope_scaling(gguf, key(Keys.Rope.SCALING_TYPE))
    return GGUFHeader(
        path=gguf.path,
        parts=tuple(file.path for file in files),
        version=gguf.version,
        size_bytes=sum(file.size_bytes for file in files),
        num_params=elements_by_type.total(),
        architecture=architecture,
        name=_text(metadata, Keys.General.NAME) or gguf.path.stem,
        quantisation=_quantisation(metadata, elements_by_type),
        licence=_text(metadata, Keys.General.LICENSE),
        context_length=_positive(gguf, key(Keys.LLM.CONTEXT_LENGTH)),
        embedding_length=embedding_length,
        block_count=block_count,
        head_count=head_count,
        head_count_kv=_per_layer(gguf, key(Keys.Attention.HEAD_COUNT_KV), block_count, default=head_count),
        head_size_k=_positive(gguf, key(Keys.Attention.KEY_LENGTH), default=head_size),
        head_size_v=_positive(gguf, key(Keys.Attention.VALUE_LENGTH), default=head_size),
        sliding_window=_number(gguf, key(Keys.Attention.SLIDING_WINDOW)) or None,
        vocab_size=tokens.count,
        bos_id=_token_id(metadata, Keys.Tokenizer.BOS_ID, tokens.count),
        eos_id=_token_id(metadata, Keys.Tokenizer.EOS_ID, tokens.count),
        add_bos=value if isinstance(value := metadata.get(Keys.Tokenizer.ADD_BOS), bool) else None,
        chat_templates=MappingProxyType(_chat_templates(metadata)),
        metadata=MappingProxyType(metadata),
    )


def _number(gguf: GGUFFile, key: str) -> int | None:
    value = gguf.metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DIMENSION:
        shown = value if isinstance(value, int) else "no whole number"
        raise gguf.error(f"is damaged ({key} is {shown})")
    return value


def _positive(gguf: GGUFFile, key: str, limit: int = MAX_DIMENSION, default: int | None = None) -> int:
    value = _number(gguf, key)
    if value is None:
        if default is None:
            raise gguf.error(f"is damaged or no chat model ({key} is missing)")
        return default
    if value == 0:
        raise gguf.error(f"is damaged ({key} is 0)")
    if value > limit:
        raise gguf.error(f"is damaged or too large for this program ({key} is {value:,})")
    return value


def _per_layer(gguf: GGUFFile, key: str, block_count: int, default: PerLayer) -> PerLayer:
    value = gguf.metadata.get(key)
    if not isinstance(value, GGUFArray):
        number = _number(gguf, key)
        return default if number is None else number
    if value.count != block_count:
        raise gguf.error(f"is damaged ({key} has {value.count:,} values for {block_count} layers)")
    numbers = read_integers(gguf, value)
    if not all(0 <= number <= MAX_DIMENSION for number in numbers):
        raise gguf.error(f"is damaged ({key} has an impossible value)")
    return numbers


def _check_experts(gguf: GGUFFile, architecture: str) -> None:
    key = Keys.LLM.EXPERT_COUNT.format(arch=architecture)
    num_experts = _number(gguf, key) or 0
    if num_experts > MAX_EXPERTS:
        raise gguf.error(f"is damaged or too large for this program ({key} is {num_experts:,})")
    used_key = Keys.LLM.EXPERT_USED_COUNT.format(arch=architecture)
    used = _per_layer(
        gguf, used_key, _positive(gguf, Keys.LLM.BLOCK_COUNT.format(arch=architecture)), default=0
    )
    num_used = used if isinstance(used, int) else max(used)
    # One expert is how some converters write that there are none.
    if num_experts > 1 and not 0 < num_used <= num_experts:
        raise gguf.error(f"is damaged ({used_key} is {num_used:,} of {num_experts:,})")


def _check_rope_scaling(gguf: GGUFFile, key: str) -> None:
    scaling = gguf.metadata.get(key, RopeScalingType.NONE.value)
    if scaling not in [known.value for known in RopeScalingType]:
        raise gguf.error(
            f"needs a newer program ({key} is unknown)", "update Everwarm, or choose another model"
        )


def _quantisation(metadata: Metadata, elements_by_type: Counter[str]) -> str:
    file_type = metadata.get(Keys.General.FILE_TYPE)
    try:
        # The bit of GUESSED is set beside the type.
        known = LlamaFileType(file_type & ~LlamaFileType.GUESSED) if isinstance(file_type, int) else None
    except ValueError:
        known = None
    if known is None:
        return elements_by_type.most_common(1)[0][0]
    return str(known.name).removeprefix("MOSTLY_").removeprefix("ALL_")


def _text(metadata: Metadata, key: str) -> str | None:
    """Short text on one line."""
    value = metadata.get(key)
    return " ".join(value[:200].split()) or None if isinstance(value, str) else None


def _token_id(metadata: Metadata, key: str, vocab_size: int) -> int | None:
    value = metadata.get(key)
    return value if isinstance(value, int) and 0 <= value < vocab_size else None


def _chat_templates(metadata: Metadata) -> dict[str, str]:
    unnamed, named = Keys.Tokenizer.CHAT_TEMPLATE, Keys.Tokenizer.CHAT_TEMPLATE_N.format(name="")
    texts = {key: text for key, text in metadata.items() if isinstance(text, str)}
    templates = {
        key.removeprefix(named): text for key, text in texts.items() if key.startswith(named) and key != named
    }
    if unnamed in texts:
        templates["default"] = texts[unnamed]
    return templates


def _read_other_parts(first: GGUFFile) -> list[GGUFFile]:
    """Parts 2 to N of a split model; none of an ordinary one."""
    num_parts = _number(first, Keys.Split.LLM_KV_SPLIT_COUNT) or 1
    if num_parts == 1:
        return []
    if num_parts > MAX_PARTS:
        raise first.error(f"is damaged (it claims to be split into {num_parts:,} parts)")
    index = _number(first, Keys.Split.LLM_KV_SPLIT_NO) or 0
    match = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})\.gguf", first.path.name, re.DOTALL)
    if match is None or int(match[2]) != index + 1 or int(match[3]) != num_parts:
        ending = f"-{index + 1:05}-of-{num_parts:05}.gguf"
        raise first.error(
            f"is part {index + 1} of {num_parts} and has lost its name", f"let its name end in {ending}"
        )
    names = [f"{match[1]}-{part:05}-of-{num_parts:05}.gguf" for part in range(1, num_parts + 1)]
    if index > 0:
        raise first.error(f"is part {index + 1} of {num_parts}", f"choose the first part, {names[0]}")
    try:
        return [read_gguf_file(first.path.with_name(name)) for name in names[1:]]
    except ModelFileMissing as missing:
        # The model is not gone, only incomplete.
        raise first.error("is not complete", str(missing)) from None


def _check_parts_belong_together(files: list[GGUFFile]) -> None:
    for index, file in enumerate(files):
        if index and file.metadata.get(Keys.Split.LLM_KV_SPLIT_NO) != index:
            raise file.error(f"is not part {index + 1} of this model")
    expected = files[0].metadata.get(Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT)
    found = sum(file.num_tensors for file in files)
    if len(files) > 1 and isinstance(expected, int) and found != expected:
        raise files[0].error(
            f"and its other parts hold {found:,} of {expected:,} tensors", "download all of them again"
        )
