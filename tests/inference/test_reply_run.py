"""Restored logits are those of a run that never stored anything, bit by bit.

Reference R: same process, prefill the prefix, decode the rest in the same batches, no save and no load.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from inference.kvcache.block_store import BlockStore
from inference.kvcache.model_digest import ModelDigests
from inference.llama.context import DecodeAborted
from inference.llama.sequence import Sequence
from inference.llama.state_layout import cut_rows
from inference.loaded_model import LoadedModel
from inference.messages import TokenId
from inference.model_config import ModelConfig
from inference.reply_run import ReplyRun
from inference.request import FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.conftest import TINY_KINDS
from tests.inference.lone_run import LoneRun, run_alone

Load = Callable[..., LoadedModel]
Logits = npt.NDArray[np.float32]
WITHOUT_TRIMMING = ("recurrent", "hybrid")


def some_ids(count: int, seed: int = 0) -> list[TokenId]:
    return [TokenId(int(token)) for token in np.random.default_rng(seed).integers(3, 250, count)]


def prefill(sequence: Sequence, ids: list[TokenId]) -> Logits:
    """The engine's own cut: absolute multiples of n_ubatch, the last token alone."""
    size, last = sequence.context.params.n_ubatch, len(ids) - 1
    while (position := sequence.num_tokens) < len(ids):
        end = min((position // size + 1) * size, last) if position < last else len(ids)
        sequence.decode(ids[position:end], want_logits=end > last)
    return sequence.logits()


def save(sequence: Sequence) -> tuple[npt.NDArray[np.uint8], list[TokenId]]:
    return sequence.read_state(), list(sequence.token_ids)


@pytest.mark.parametrize("kind", TINY_KINDS)
@pytest.mark.parametrize("num_stored", [1, 2, 63, 64, 65, 200, 511, 512, 513, 700])
def test_a_restored_prefix_gives_the_logits_of_one_that_was_never_stored(
    load: Load, tiny_paths: dict[str, Path], kind: str, num_stored: int
) -> None:
    prefix, rest = some_ids(num_stored), some_ids(40, seed=1)
    reference = load(tiny_paths[kind]).context.sequences[0]
    prefill(reference, prefix)
    state = save(reference)
    expected = prefill(reference, prefix + rest)
    restored = load(tiny_paths[kind]).context.sequences[0]
    assert restored.write_state(*state)
    assert restored.token_ids == prefix
    assert np.array_equal(prefill(restored, prefix + rest), expected)


@pytest.mark.parametrize("kind", [kind for kind in TINY_KINDS if kind not in WITHOUT_TRIMMING])
@pytest.mark.parametrize("num_stored", [2, 64, 65, 513, 700])
def test_the_same_prompt_again_gives_the_very_logits_of_the_first_time(
    load: Load, tiny_paths: dict[str, Path], kind: str, num_stored: int
) -> None:
    ids = some_ids(num_stored)
    cold = load(tiny_paths[kind]).context.sequences[0]
    expected = prefill(cold, ids)
    restored = load(tiny_paths[kind]).context.sequences[0]
    assert restored.write_state(*save(cold))
    # A restored state holds no logits: the last token is taken off and decoded again.
    assert restored.truncate(num_stored - 1)
    assert np.array_equal(prefill(restored, ids), expected)


@pytest.mark.parametrize("kind", WITHOUT_TRIMMING)
def test_a_recurrent_state_is_never_cut(load: Load, tiny_paths: dict[str, Path], kind: str) -> None:
    sequence = load(tiny_paths[kind]).context.sequences[0]
    prefill(sequence, some_ids(20))
    assert not sequence.truncate(19)
    assert sequence.num_tokens == 20


def test_an_aborted_batch_leaves_what_was_there_before(load: Load, starter_path: Path) -> None:
    # Reported as mdegans/drama_llama#52: part of a failed batch stayed in the cache.
    prefix, rest = some_ids(600), some_ids(512, seed=1)
    sequence = load(starter_path).context.sequences[0]
    prefill(sequence, prefix)
    sequence.context.abort_flag.set()
    with pytest.raises(DecodeAborted):
        sequence.decode(rest, want_logits=True)
    assert sequence.token_ids == prefix
    sequence.context.abort_flag.clear()
    reference = load(starter_path).context.sequences[0]
    prefill(reference, prefix)
    assert np.array_equal(prefill(sequence, prefix + rest), prefill(reference, prefix + rest))


@pytest.mark.parametrize("kind", WITHOUT_TRIMMING)
def test_an_aborted_batch_empties_a_recurrent_sequence(
    load: Load, tiny_paths: dict[str, Path], kind: str
) -> None:
    sequence = load(tiny_paths[kind]).context.sequences[0]
    prefill(sequence, some_ids(20))
    sequence.context.abort_flag.set()
    with pytest.raises(DecodeAborted):
        sequence.decode(some_ids(20), want_logits=True)
    assert sequence.num_tokens == 0


# --- whole requests over one store -------------------------------------------------------------------


class Chat:
    """Runs raw prompts of given text on one model over one store; each run in a context of its own."""

    def __init__(self, load: Load, path: Path, folder: Path) -> None:
        self._load, self._path = load, path
        self._folder = folder

    def run(self, prompt: str, loaded: LoadedModel | None = None, max_tokens: int = 8) -> ReplyRun:
        """Process 2, 3, …: nothing is shared with earlier runs but the folder."""
        cache = BlockStore(self._folder, 10**9, on_notice=pytest.fail)
        loaded = loaded or self._load_stored()
        request = GenerationRequest(
            ModelConfig("unused"),
            prompt=prompt,
            sampling=SamplingParams(temperature=0.0, max_tokens=max_tokens),
        )
        run = run_alone(request, loaded, cache)
        cache.close(30)
        return run

    def _load_stored(self) -> LoadedModel:
        return self._load(self._path, digests=ModelDigests(self._folder / "digests.json"))


@pytest.fixture
def chat(load: Load, tiny_paths: dict[str, Path], tmp_path: Path) -> Callable[[str], Chat]:
    return lambda kind: Chat(load, tiny_paths[kind], tmp_path)


def stored_files(talk: Chat) -> list[Path]:
    return sorted(talk._folder.rglob("*.kv"))


def text_of(num_tokens: int, letter: str = "q") -> str:
    """ASCII letters that no merge joins: as many tokens as characters."""
    return (letter + "x") * (num_tokens // 2) + letter * (num_tokens % 2)


def test_the_counts_add_up_to_the_prompt(chat: Callable[[str], Chat]) -> None:
    talk = chat("gqa")
    for prompt in (text_of(100), text_of(100) + "abc", text_of(50), "z"):
        counts = talk.run(prompt).counts
        parts = counts.reused_tokens + counts.restored_tokens + counts.prefilled_tokens
        assert parts == counts.num_prompt_tokens == len(prompt)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_the_whole_prompt_stored_is_decoded_again_from_its_last_token_at_most(
    chat: Callable[[str], Chat], kind: str
) -> None:
    talk = chat(kind)
    cold = talk.run(text_of(300))
    again = talk.run(text_of(300))
    assert again.generated_ids == cold.generated_ids
    # The reply moved the window past the prompt's end, and recurrent state cannot go back at all.
    goes_back = kind not in ("sliding window", *WITHOUT_TRIMMING)
    assert again.counts.prefilled_tokens == (1 if goes_back else 300)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_chat_that_goes_on_prefills_only_what_was_added(chat: Callable[[str], Chat], kind: str) -> None:
    talk = chat(kind)
    prompt = text_of(300)
    for _ in range(3):
        run = talk.run(prompt, max_tokens=1)
        prompt += "abc"
    assert (run.counts.restored_tokens, run.counts.prefilled_tokens) == (303, 3)


def test_reuse_in_memory_needs_no_file(chat: Callable[[str], Chat]) -> None:
    talk = chat("gqa")
    loaded = talk._load_stored()
    talk.run(text_of(100), loaded)
    counts = talk.run(text_of(100) + "abc", loaded).counts
    assert (counts.reused_tokens, counts.restored_tokens) == (100, 0)


def test_an_empty_sequence_is_not_stored(chat: Callable[[str], Chat], load: Load) -> None:
    talk = chat("gqa")
    cache = BlockStore(talk._folder, 10**9, on_notice=pytest.fail)
    loaded = talk._load_stored()
    run = LoneRun(GenerationRequest(ModelConfig("unused"), prompt="x"), loaded, cache)
    run.cancel()
    assert run.run().finish_reason == FinishReason.CANCELLED
    cache.close(30)
    assert stored_files(talk) == []


def test_a_state_that_the_library_refuses_is_removed(chat: Callable[[str], Chat]) -> None:
    talk = chat("gqa")
    loaded = talk._load_stored()
    fingerprint = loaded.fingerprint()
    assert fingerprint is not None
    store = BlockStore(talk._folder, 10**9, on_notice=pytest.fail)
    ids = np.asarray(loaded.model.vocab.tokenize(text_of(50)), dtype=np.int32)
    store.store_block(fingerprint, ids, 0, 50, np.zeros(5000, dtype=np.uint8), cut_rows)
    store.close(30)
    assert talk.run(text_of(50) + "abc", loaded).counts.prefilled_tokens == 53
    assert talk.run(text_of(50) + "abc").counts.restored_tokens == 52
