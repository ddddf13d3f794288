"""What the store is for: shared prefixes, another reply to the same question, templates that drop reasoning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inference import stored_sequence
from inference.llama.sequence_state import StateKind, capture_block
from inference.messages import Message
from inference.reply_run import ReplyRun
from tests.inference.conftest import TINY_KINDS
from tests.inference.stored_chats import StoredChats
from tests.tiny_models import CHATML, TinyModel, write_hybrid, write_llama, write_mamba, write_sliding_window

WITH_CHECKPOINTS = ("sliding window", "recurrent", "hybrid")
STRIPS_REASONING = CHATML.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if not loop.last else message['content'])",
)
Open = Callable[..., StoredChats]


def user(text: str) -> Message:
    return Message("user", text)


def answer(run: ReplyRun) -> Message:
    return Message("assistant", run.text, tuple(run.generated_ids))


def test_ten_chats_store_their_shared_system_prompt_once(
    open_chats: Open, tiny_paths: dict[str, Path]
) -> None:
    chats = open_chats(tiny_paths["mha"], n_ctx=4096, n_ubatch=512)
    prefixes: set[tuple[int, ...]] = set()
    for number in range(10):
        messages = [Message("system", "z" * 2000), user("bdgkq"[number % 5] * (50 + 10 * number))]
        run = chats.ask(messages, owner=f"chat {number}")
        if number:
            assert run.counts.prefilled_tokens < 50 + 10 * number + 30
        held = tuple(chats.loaded.context.sequences[0].token_ids)
        prefixes.update(held[:end] for end in range(1, len(held) + 1))
    one_row, two_rows = (capture_block(chats.loaded.context.sequences[0], 0, end).size for end in (1, 2))
    assert 2000 < len(prefixes) < 4000
    assert chats.store.store_bytes <= 1.05 * len(prefixes) * (two_rows - one_row)


def test_a_private_chat_leaves_nothing_and_looks_nothing_up(
    open_chats: Open, tiny_paths: dict[str, Path]
) -> None:
    chats = open_chats(tiny_paths["gqa"])
    chats.ask([user("b" * 100)])
    chats.restart()
    before = {path: path.stat().st_mtime_ns for path in chats.folder.rglob("*.*") if path.suffix != ".json"}
    run = chats.ask([user("b" * 100)], is_private=True, owner="someone")
    assert (run.counts.restored_tokens, run.bytes_read, run.miss) == (0, 0, None)
    chats.restart()
    after = {path: path.stat().st_mtime_ns for path in chats.folder.rglob("*.*") if path.suffix != ".json"}
    assert after == before


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("num_letters", [1, 300])
def test_another_reply_to_the_same_question_prefills_the_generation_prompt_at_most(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, restarts: bool, num_letters: int
) -> None:
    chats = open_chats(tiny_paths[kind])
    messages = [Message("system", "z" * num_letters), user("b" * num_letters)]
    first = chats.ask(messages, max_tokens=40)
    if restarts:
        chats.restart()
    again = chats.ask(messages, max_tokens=40)
    prompt = chats.prompt(messages)
    assert prompt.user_end is not None
    assert again.generated_ids == first.generated_ids
    assert again.counts.prefilled_tokens <= len(prompt.token_ids) - prompt.user_end
    if kind not in WITH_CHECKPOINTS:
        assert again.counts.prefilled_tokens == 1


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_question_edited_after_two_turns_is_read_from_the_end_of_the_turn_before(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    chats = open_chats(tiny_paths[kind])
    messages = [user("b" * 200)]
    messages += [answer(chats.ask(messages, owner="chat")), user("d" * 200)]
    chats.ask(messages, owner="chat")
    chats.restart()
    edited = [*messages[:-1], user("g" * 50)]
    run = chats.ask(edited, owner="chat")
    # All but the new question, what stands around it, and the reply's last token, which was sampled only.
    assert run.counts.prefilled_tokens <= 50 + 25
    assert run.counts.restored_tokens > 200


@pytest.mark.parametrize("kind", ["gqa", *WITH_CHECKPOINTS])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_template_that_drops_earlier_reasoning_reads_again_from_the_end_of_the_question(
    open_chats: Open, tmp_path: Path, kind: str, restarts: bool
) -> None:
    write = {
        "gqa": write_llama,
        "sliding window": write_sliding_window,
        "recurrent": write_mamba,
        "hybrid": write_hybrid,
    }
    chats = open_chats(write[kind](tmp_path / "model.gguf", TinyModel(chat_template=STRIPS_REASONING)))
    question = [user("b" * 200)]
    first = chats.ask(question, max_tokens=100)
    user_end = chats.prompt(question).user_end
    assert user_end is not None
    if restarts:
        chats.restart()
    reasoned = Message("assistant", f"{first.text}</think>q", tuple(first.generated_ids))
    second = chats.ask([*question, reasoned, user("d")])
    reused = second.counts.reused_tokens + second.counts.restored_tokens
    assert reused >= user_end
    if kind in WITH_CHECKPOINTS and restarts:
        assert reused == user_end


@pytest.mark.parametrize("kind", WITH_CHECKPOINTS)
def test_a_damaged_checkpoint_costs_nothing_that_memory_has(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str
) -> None:
    # Reported as ggml-org/llama.cpp#14434: a failed restore wiped a good warm cache.
    chats = open_chats(tiny_paths[kind])
    messages = [user("b" * 200)]
    messages += [answer(chats.ask(messages)), user("d" * 200)]
    longer = [*messages, answer(chats.ask(messages)), user("g")]
    chats.restart()
    in_memory = chats.ask(messages[:1], max_tokens=1).counts.num_prompt_tokens
    for path in chats.folder.glob("*/c-*.kv"):
        if int(path.name.split("-")[1]) > in_memory:
            path.write_bytes(bytes(path.stat().st_size))
    counts = chats.ask(longer).counts
    assert (counts.reused_tokens, counts.restored_tokens) == (in_memory, 0)


@pytest.mark.parametrize("kind", ["gqa", "recurrent"])
def test_a_state_of_unknown_layout_is_stored_whole_and_restored_exactly(
    open_chats: Open, tiny_paths: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_sequence, "state_kind", lambda _context: StateKind.WHOLE)
    chats = open_chats(tiny_paths[kind])
    chats.ask("b" * 300, max_tokens=1)
    stats = chats.store.stats()
    assert (stats.num_blocks, stats.num_checkpoints, stats.num_wholes) == (0, 0, 1)
    chats.restart()
    goes_on = chats.ask("b" * 300 + "d" * 50)
    assert goes_on.counts.restored_tokens == 300
    chats.restart()
    shorter = chats.ask("b" * 200)
    assert shorter.counts.restored_tokens == (199 if kind == "gqa" else 0)
