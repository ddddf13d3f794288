"""From requests to token ids. Double BOS: reported as abetlen/llama-cpp-python#1501, #1537."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from inference.loaded_model import LoadedModel
from inference.messages import Message, TokenId
from inference.model_config import ModelConfig
from inference.request import EngineError, ErrorCode, GenerationRequest
from tests.tiny_models import CHATML, TinyModel, write_llama

Load = Callable[..., LoadedModel]


def chat_request(*messages: Message) -> GenerationRequest:
    return GenerationRequest(ModelConfig("unused"), messages=messages)


def raw_request(prompt: str) -> GenerationRequest:
    return GenerationRequest(ModelConfig("unused"), prompt=prompt)


def leading_bos(loaded: LoadedModel, token_ids: list[TokenId]) -> int:
    return next(
        (index for index, token in enumerate(token_ids) if token != loaded.model.vocab.bos), len(token_ids)
    )


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("template", [CHATML, "{{ bos_token }}" + CHATML], ids=["plain", "writes bos_token"])
@pytest.mark.parametrize("path", ["chat", "raw"])
def test_exactly_one_bos_if_the_model_wants_it_and_none_otherwise(
    load: Load, tmp_path: Path, add_bos: bool, template: str, path: str
) -> None:
    model = TinyModel(add_bos=add_bos, chat_template=template)
    loaded = load(write_llama(tmp_path / "m.gguf", model))
    request = chat_request(Message("user", "hello")) if path == "chat" else raw_request("hello")
    token_ids = loaded.prompt_builder.build(request).token_ids
    assert leading_bos(loaded, token_ids) == (1 if add_bos else 0)
    assert len(token_ids) > leading_bos(loaded, token_ids)


def test_the_starter_model_gets_one_turn_marker_in_front(load: Load, starter_path: Path) -> None:
    # Its BOS is the turn marker itself; it wants none added, and none taken away.
    loaded = load(starter_path)
    token_ids = loaded.prompt_builder.build(chat_request(Message("user", "hello"))).token_ids
    assert leading_bos(loaded, token_ids) == 1


def test_a_reply_goes_back_in_with_the_ids_that_were_sampled(load: Load, tiny_paths: dict[str, Path]) -> None:
    # Reported as abetlen/llama-cpp-python#1369: the last reply was evaluated again each turn.
    loaded = load(tiny_paths["mha"])
    vocab = loaded.model.vocab
    letters = tuple(token for letter in "hello" for token in vocab.tokenize(letter))
    assert list(letters) != vocab.tokenize("hello")
    messages = (Message("user", "hi"), Message("assistant", "hello", letters), Message("user", "on"))
    first = loaded.prompt_builder.build(chat_request(messages[0])).token_ids
    token_ids = loaded.prompt_builder.build(chat_request(*messages)).token_ids
    assert token_ids[: len(first) + 5] == [*first, *letters]


@pytest.mark.parametrize("content", ["hello!", "Hello", "hell"])
def test_ids_that_no_longer_spell_the_text_are_not_used(
    load: Load, tiny_paths: dict[str, Path], content: str
) -> None:
    loaded = load(tiny_paths["mha"])
    letters = tuple(token for letter in "hello" for token in loaded.model.vocab.tokenize(letter))
    edited = (Message("user", "hi"), Message("assistant", content, letters), Message("user", "on"))
    plain = tuple(replace(message, token_ids=None) for message in edited)
    assert loaded.prompt_builder.build(chat_request(*edited)) == loaded.prompt_builder.build(
        chat_request(*plain)
    )


def test_ids_outside_the_vocabulary_are_not_used(load: Load, tiny_paths: dict[str, Path]) -> None:
    loaded = load(tiny_paths["mha"])
    foreign = Message("assistant", "hello", (TokenId(999_999_999),))
    plain = replace(foreign, token_ids=None)
    user = Message("user", "hi")
    assert loaded.prompt_builder.build(chat_request(user, foreign)) == loaded.prompt_builder.build(
        chat_request(user, plain)
    )


@pytest.mark.parametrize("prompt", ["", "\x00", "\ud800", "<|im_end|>"])
def test_strange_raw_prompts_become_ids_or_are_refused(
    load: Load, tiny_paths: dict[str, Path], prompt: str
) -> None:
    loaded = load(tiny_paths["mha"])
    if prompt:
        assert loaded.prompt_builder.build(raw_request(prompt)).token_ids
    else:
        with pytest.raises(EngineError) as refused:
            loaded.prompt_builder.build(raw_request(prompt))
        assert refused.value.code == ErrorCode.PROMPT_EMPTY


def test_a_model_without_a_template_is_refused_for_chats_but_not_for_raw_text(
    load: Load, tmp_path: Path
) -> None:
    loaded = load(write_llama(tmp_path / "base.gguf", TinyModel(chat_template=None)))
    with pytest.raises(EngineError, match="no chat template"):
        loaded.prompt_builder.build(chat_request(Message("user", "hi")))
    assert loaded.prompt_builder.build(raw_request("hi")).token_ids


def test_blocks_close_before_each_message_and_before_the_generation_prompt(
    load: Load, starter_path: Path
) -> None:
    loaded = load(starter_path)
    vocab = loaded.model.vocab
    messages = (
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Yes?"),
        Message("user", "Go"),
    )
    prompt = loaded.prompt_builder.build(chat_request(*messages))

    def text_up_to(position: int | None) -> str:
        assert position is not None
        return b"".join(vocab.written_piece(token) for token in prompt.token_ids[:position]).decode()

    system = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    first = system + "Hi<|im_end|>\n<|im_start|>assistant\n"
    second = first + "Yes?<|im_end|>\n<|im_start|>user\n"
    assert [text_up_to(end) for end in prompt.message_ends] == [
        "<|im_start|>system\n",
        system,
        first,
        second,
        second + "Go<|im_end|>\n",
    ]
    assert text_up_to(prompt.system_end) == system
    assert text_up_to(prompt.user_end) == second + "Go<|im_end|>\n"


def test_message_ends_count_the_bos_and_ids_that_were_sampled(load: Load, tmp_path: Path) -> None:
    loaded = load(write_llama(tmp_path / "m.gguf", TinyModel(add_bos=True)))
    letters = tuple(token for letter in "hello" for token in loaded.model.vocab.tokenize(letter))
    messages = (Message("user", "hi"), Message("assistant", "hello", letters), Message("user", "on"))
    prompt = loaded.prompt_builder.build(chat_request(*messages))
    reply_at = prompt.message_ends[1]
    assert tuple(prompt.token_ids[reply_at : reply_at + 5]) == letters
    assert prompt.token_ids[0] == loaded.model.vocab.bos
