"""Writers of GGUF models with random weights: about 1 MB, loaded in milliseconds, of every kind of memory.

What they say means nothing, but llama.cpp loads and runs them, so logits and cache states can be compared exactly.
Equal arguments write equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter, LlamaFileType, TokenType

Tensors = dict[str, npt.NDArray[np.float32]]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

HEAD_SIZE = 32
"""The smallest that quantised K and V types can store."""
N_EMBD = 128
N_FF = 256
D_CONV, D_STATE, DT_RANK, D_INNER = 4, 16, 8, 2 * N_EMBD

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Every byte is a token, so characters outside ASCII take several; a few merges, so that text is cut in other
# places than a model may write it.
MERGES = (
    "t h",
    "th e",
    "Ġ the",
    "i n",
    "Ġ a",
    "e r",
    "o n",
    "Ġ w",
    "o u",
    "y ou",
    "Ġ you",
    "l l",
    "e ll",
    "h ell",
    "hell o",
)


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What all kinds have in common. eos_token: one of vocabulary(). context_length: tokens."""

    seed: int = 0
    name: str = "Tiny"
    context_length: int = 4096
    chat_template: str | None = CHATML
    add_bos: bool = False
    eos_token: str = "<|im_end|>"
    n_layer: int = 2


def vocabulary() -> list[str]:
    """Tokens in the order of their ids: special tokens, one for each byte, then the merged ones."""
    return [*SPECIAL_TOKENS, *_byte_tokens(), *(merge.replace(" ", "") for merge in MERGES)]


def write_llama(path: Path, model: TinyModel = TinyModel(), *, n_head: int = 4, n_head_kv: int = 4) -> Path:
    """Attention in all layers: n_head_kv = n_head is MHA, fewer GQA, 1 MQA."""
    weights = _Weights(model.seed)
    writer = _writer(path, "llama", model)
    _add_attention(writer, n_head, n_head_kv)
    tensors = weights.outer()
    for layer in range(model.n_layer):
        tensors |= weights.attention(layer, n_head, n_head_kv) | weights.feed_forward(layer)
    return _finish(writer, path, tensors)


def write_multi_axis_rope(
    path: Path, model: TinyModel = TinyModel(), *, n_head: int = 4, n_head_kv: int = 2
) -> Path:
    """Qwen2-VL: attention in all layers, with positions on several axes, which the library notes of every row."""
    weights = _Weights(model.seed)
    writer = _writer(path, "qwen2vl", model)
    _add_attention(writer, n_head, n_head_kv)
    writer.add_rope_dimension_sections([HEAD_SIZE // 4, HEAD_SIZE // 8, HEAD_SIZE // 8, 0])
    tensors = weights.outer()
    for layer in range(model.n_layer):
        tensors |= weights.attention(layer, n_head, n_head_kv) | weights.feed_forward(layer)
    return _finish(writer, path, tensors)


def write_sliding_window(
    path: Path, model: TinyModel = TinyModel(), *, n_head: int = 4, n_head_kv: int = 2, n_swa: int = 64
) -> Path:
    """Gemma 3: even layers see the last n_swa tokens, odd ones all."""
    weights = _Weights(model.seed)
    writer = _writer(path, "gemma3", model)
    _add_attention(writer, n_head, n_head_kv)
    writer.add_sliding_window(n_swa)
    writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(model.n_layer)])
    tensors = weights.outer()
    for layer in range(model.n_layer):
        tensors |= weights.attention(layer, n_head, n_head_kv) | weights.feed_forward(layer)
        tensors |= {f"blk.{layer}.attn_{part}_norm.weight": weights.norm(HEAD_SIZE) for part in "qk"}
        tensors |= {
            f"blk.{layer}.post_{part}_norm.weight": weights.norm(N_EMBD) for part in ("attention", "ffw")
        }
    return _finish(writer, path, tensors)


def write_mamba(path: Path, model: TinyModel = TinyModel()) -> Path:
    """Recurrent state in all layers."""
    weights = _Weights(model.seed)
    writer = _writer(path, "mamba", model)
    _add_ssm(writer)
    writer.add_head_count(0)
    writer.add_feed_forward_length(0)
    tensors = weights.outer()
    for layer in range(model.n_layer):
        tensors |= weights.ssm(layer)
    return _finish(writer, path, tensors)


def write_hybrid(path: Path, model: TinyModel = TinyModel(), *, n_head: int = 4, n_head_kv: int = 2) -> Path:
    """Jamba: recurrent state in even layers, attention in odd ones."""
    weights = _Weights(model.seed)
    writer = _writer(path, "jamba", model)
    _add_ssm(writer)
    _add_attention(writer, n_head, [n_head_kv if layer % 2 else 0 for layer in range(model.n_layer)])
    tensors = weights.outer()
    for layer in range(model.n_layer):
        tensors |= (
            weights.attention(layer, n_head, n_head_kv) if layer % 2 else weights.ssm(layer, inner_norms=True)
        )
        tensors |= weights.feed_forward(layer)
    return _finish(writer, path, tensors)


class _Weights:
    """Random tensors by their names in the file; shapes as in numpy, the contiguous dimension last."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def matrix(self, n_out: int, n_in: int) -> npt.NDArray[np.float32]:
        return (self._rng.standard_normal((n_out, n_in)) / np.sqrt(n_in)).astype(np.float32)

    def norm(self, n: int) -> npt.NDArray[np.float32]:
        return self._rng.uniform(0.5, 1.5, n).astype(np.float32)

    def outer(self) -> Tensors:
        n_vocab = len(vocabulary())
        return {
            "token_embd.weight": self.matrix(n_vocab, N_EMBD),
            "output_norm.weight": self.norm(N_EMBD),
            # Logits a few units apart, so that a wrong state shows in them.
            "output.weight": 3 * self.matrix(n_vocab, N_EMBD),
        }

    def attention(self, layer: int, n_head: int, n_head_kv: int) -> Tensors:
        return {
            f"blk.{layer}.attn_norm.weight": self.norm(N_EMBD),
            f"blk.{layer}.attn_q.weight": self.matrix(n_head * HEAD_SIZE, N_EMBD),
            f"blk.{layer}.attn_k.weight": self.matrix(n_head_kv * HEAD_SIZE, N_EMBD),
            f"blk.{layer}.attn_v.weight": self.matrix(n_head_kv * HEAD_SIZE, N_EMBD),
            f"blk.{layer}.attn_output.weight": self.matrix(N_EMBD, n_head * HEAD_SIZE),
        }

    def feed_forward(self, layer: int) -> Tensors:
        return {
            f"blk.{layer}.ffn_norm.weight": self.norm(N_EMBD),
            f"blk.{layer}.ffn_gate.weight": self.matrix(N_FF, N_EMBD),
            f"blk.{layer}.ffn_up.weight": self.matrix(N_FF, N_EMBD),
            f"blk.{layer}.ffn_down.weight": self.matrix(N_EMBD, N_FF),
        }

    def ssm(self, layer: int, inner_norms: bool = False) -> Tensors:
        tensors = {
            f"blk.{layer}.attn_norm.weight": self.norm(N_EMBD),
            f"blk.{layer}.ssm_in.weight": self.matrix(2 * D_INNER, N_EMBD),
            f"blk.{layer}.ssm_conv1d.weight": self.matrix(D_INNER, D_CONV),
            f"blk.{layer}.ssm_conv1d.bias": np.zeros(D_INNER, np.float32),
            f"blk.{layer}.ssm_x.weight": self.matrix(DT_RANK + 2 * D_STATE, D_INNER),
            f"blk.{layer}.ssm_dt.weight": self.matrix(D_INNER, DT_RANK),
            # The step of a Mamba begins between 0.001 and 0.1; small ones remember far back.
            f"blk.{layer}.ssm_dt.bias": self._rng.uniform(-6.9, -2.3, D_INNER).astype(np.float32),
            f"blk.{layer}.ssm_a": -np.tile(np.arange(1, D_STATE + 1, dtype=np.float32), (D_INNER, 1)),
            f"blk.{layer}.ssm_d": np.ones(D_INNER, np.float32),
            f"blk.{layer}.ssm_out.weight": self.matrix(N_EMBD, D_INNER),
        }
        if inner_norms:
            for part, n in (("dt", DT_RANK), ("b", D_STATE), ("c", D_STATE)):
                tensors[f"blk.{layer}.ssm_{part}_norm.weight"] = self.norm(n)
        return tensors


def _writer(path: Path, architecture: str, model: TinyModel) -> GGUFWriter:
    tokens = vocabulary()
    writer = GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_name(model.name)
    writer.add_license("apache-2.0")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_context_length(model.context_length)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(model.n_layer)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in SPECIAL_TOKENS else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index(model.eos_token))
    writer.add_add_bos_token(model.add_bos)
    if model.chat_template is not None:
        writer.add_chat_template(model.chat_template)
    return writer


def _add_attention(writer: GGUFWriter, n_head: int, n_head_kv: int | list[int]) -> None:
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)


def _add_ssm(writer: GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(D_CONV)
    writer.add_ssm_inner_size(D_INNER)
    writer.add_ssm_state_size(D_STATE)
    writer.add_ssm_time_step_rank(DT_RANK)


def _finish(writer: GGUFWriter, path: Path, tensors: Tensors) -> Path:
    for name, weights in tensors.items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _byte_tokens() -> list[str]:
    """GPT-2's letter for each of the 256 bytes: the printable ones stand for themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]
