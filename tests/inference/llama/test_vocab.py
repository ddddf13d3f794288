"""Texts tokenised on their own: what a user typed is no control token, and no space comes in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gguf import GGUFWriter, TokenType
from hypothesis import given
from hypothesis import strategies as st

from desktop.starter_model import find_starter_model
from inference.llama.native_library import load_native_library
from inference.llama.vocab import Vocab
from inference.messages import TokenId
from tests.gemma_model import gemma_path

OpenVocab = Callable[[Path], Vocab]
PIECES = ["▁", "a", "b", "▁a", "ab", "▁ab", "b▁", "▁▁", "ba", "<", ">", "s"]


def write_sentencepiece(path: Path, *, add_space_prefix: bool) -> Path:
    """A vocabulary without a model: control tokens, bytes, and a few pieces with spaces in them."""
    control = ["<unk>", "<s>", "</s>"]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*control, *byte_pieces, *PIECES])
    writer.add_token_scores([0.0] * (3 + 256) + [-float(number) for number, _ in enumerate(PIECES)])
    writer.add_token_types(
        [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
        + [TokenType.BYTE] * 256
        + [TokenType.NORMAL] * len(PIECES)
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(add_space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def open_vocab() -> Iterator[OpenVocab]:
    llama = load_native_library()
    handles: list[int] = []

    def open_vocab(path: Path) -> Vocab:
        params = llama.llama_model_default_params()
        params.vocab_only = True
        handles.append(llama.llama_model_load_from_file(str(path).encode(), params))
        assert handles[-1]
        return Vocab(llama, handles[-1])

    yield open_vocab
    for handle in handles:
        llama.llama_model_free(handle)


@pytest.fixture(scope="module")
def spaced(open_vocab: OpenVocab, tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    path = tmp_path_factory.mktemp("vocab") / "spaced.gguf"
    return open_vocab(write_sentencepiece(path, add_space_prefix=True))


@pytest.fixture(scope="module")
def starter(open_vocab: OpenVocab) -> Vocab:
    path = find_starter_model()
    assert path is not None
    return open_vocab(path)


@pytest.fixture(scope="module")
def gemma(open_vocab: OpenVocab) -> Vocab:
    return open_vocab(gemma_path())


def spelled(vocab: Vocab, ids: list[TokenId]) -> str:
    return b"".join(vocab.written_piece(token) for token in ids).decode()


def test_a_text_inside_another_gets_no_space_in_front(spaced: Vocab) -> None:
    assert spelled(spaced, spaced.tokenize("ab")) == " ab"
    assert spelled(spaced, spaced.tokenize_inside("ab", parse_special=False)) == "ab"


def test_a_text_inside_another_is_cut_as_it_is_there(spaced: Vocab) -> None:
    # Behind a piece that joins with nothing, both must be the same.
    joint = spaced.tokenize("é" + "ab ab\nba")
    alone = spaced.tokenize_inside("ab ab\nba", parse_special=False)
    assert joint[-len(alone) :] == alone


@given(st.text(alphabet="ab <>/s\né", max_size=12))
def test_whatever_stands_inside_spells_itself(spaced: Vocab, text: str) -> None:
    ids = spaced.tokenize_inside(text, parse_special=False)
    assert spaced.spelled_text(tuple(ids)) == text


def test_a_control_token_in_template_text_is_one_and_what_follows_it_is_as_llama_cpp_reads_it(
    spaced: Vocab,
) -> None:
    eos = spaced.eos
    assert eos is not None
    ids = spaced.tokenize_inside("b</s>ab", parse_special=True)
    assert ids[1:] == [eos, *spaced.tokenize("ab")]


def test_without_a_space_prefix_nothing_is_taken_away(open_vocab: OpenVocab, tmp_path: Path) -> None:
    vocab = open_vocab(write_sentencepiece(tmp_path / "plain.gguf", add_space_prefix=False))
    assert vocab.tokenize_inside("ab ab", parse_special=False) == vocab.tokenize("ab ab")


TEXTS = ["Hello", " hello", "\n\nhello", "  x", "naïve 🙂", "1 + 1 = 2\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_starter_model_and_gemma_spell_what_stands_inside(
    starter: Vocab, gemma: Vocab, text: str
) -> None:
    for vocab in (starter, gemma):
        assert vocab.spelled_text(tuple(vocab.tokenize_inside(text, parse_special=False))) == text


@pytest.mark.parametrize("text", ["<|im_end|>", "a<|im_start|>system\nb", "<|endoftext|>"])
def test_a_control_token_that_is_typed_is_text(starter: Vocab, text: str) -> None:
    ids = starter.tokenize_inside(text, parse_special=False)
    assert starter.spelled_text(tuple(ids)) == text
    assert starter.spells_control_token(text)
    assert starter.spelled_text(tuple(starter.tokenize_inside(text, parse_special=True))) != text


def test_ids_that_are_no_tokens_spell_nothing(starter: Vocab) -> None:
    assert starter.spelled_text((TokenId(-1),)) is None
    assert starter.spelled_text((TokenId(starter.size),)) is None
    assert starter.spelled_text(()) == ""


def test_a_token_of_its_own_is_told_from_text(starter: Vocab) -> None:
    assert starter.has_token("<|im_start|>")
    assert not starter.has_token("<|start_header_id|>")
    assert not starter.has_token("<|im_start|><|im_end|>")
