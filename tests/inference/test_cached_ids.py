"""What the store is asked with are the very ids that are decoded, the one BOS among them.

Reported as abetlen/llama-cpp-python#1501 (two of them) and #1537 (none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from inference.kvcache.block import prefix_hashes
from inference.kvcache.reuse import token_array
from inference.llama.sequence import BatchPart
from inference.messages import Message, TokenId
from tests.inference.stored_chats import StoredChats, request
from tests.tiny_models import CHATML, TinyModel, write_llama

Open = Callable[..., StoredChats]
TEMPLATES = {"plain": CHATML, "writes bos_token": "{{ bos_token }}" + CHATML}
QUESTION = "hello " * 20
# The same text that the template makes of the question, with no template.
RAW = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


def stored_hashes(chats: StoredChats) -> set[str]:
    return {path.stem.rpartition("-")[2] for path in chats.folder.rglob("b-*.kv")}


def name_of(chats: StoredChats, token_ids: Sequence[TokenId]) -> str:
    """The hash that ends the name of a block that ends with these ids."""
    (name,) = prefix_hashes(chats.fingerprint, token_array(token_ids), [len(token_ids)])
    return name


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("path", ["chat", "raw"])
def test_blocks_are_named_by_ids_that_begin_with_the_bos_that_was_decoded(
    open_chats: Open, tmp_path: Path, add_bos: bool, template: str, path: str
) -> None:
    chats = open_chats(
        write_llama(tmp_path / "m.gguf", TinyModel(add_bos=add_bos, chat_template=TEMPLATES[template]))
    )
    decoded: list[TokenId] = []
    decode = chats.loaded.context.decode

    def note(parts: Sequence[BatchPart]) -> None:
        decoded.extend(token for part in parts for token in part.token_ids)
        decode(parts)

    chats.loaded.context.decode = note  # type: ignore[method-assign]
    asked = [Message("user", QUESTION)] if path == "chat" else QUESTION
    run = chats.ask(asked, max_tokens=1)
    assert run.prompt is not None
    assert decoded == run.prompt.token_ids
    bos = chats.loaded.model.vocab.bos
    assert [token == bos for token in decoded[:2]] == [add_bos, False]
    others = decoded[1:] if add_bos else [bos, *decoded]
    assert name_of(chats, decoded) in stored_hashes(chats)
    assert name_of(chats, others) not in stored_hashes(chats)


@pytest.mark.parametrize("add_bos", [True, False])
def test_one_prompt_is_stored_once_whether_its_template_or_the_tokenizer_wrote_the_bos(
    open_chats: Open, tmp_path: Path, add_bos: bool
) -> None:
    chats = open_chats(write_llama(tmp_path / "m.gguf", TinyModel(add_bos=add_bos)))
    asked = replace(request([Message("user", QUESTION)]), chat_template=TEMPLATES["plain"])
    builder = chats.loaded.prompt_builder
    plain = builder.build(asked).token_ids
    assert builder.build(replace(asked, chat_template=TEMPLATES["writes bos_token"])).token_ids == plain
    chats.ask([Message("user", QUESTION)], max_tokens=1)
    chats.restart()
    counts = chats.ask(
        [Message("user", QUESTION)], max_tokens=1, template=TEMPLATES["writes bos_token"]
    ).counts
    assert (counts.restored_tokens, counts.prefilled_tokens) == (len(plain) - 1, 1)
