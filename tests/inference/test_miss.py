"""What a reply's receipt says of text that was read by the same model file, but not as it is loaded now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inference import loaded_model
from inference.miss import MissReason
from tests.inference import stored_chats
from tests.inference.stored_chats import StoredChats

PROMPT = "bdgkq" * 80


@pytest.fixture(params=["gqa", "sliding window", "recurrent"])
def chats(
    request: pytest.FixtureRequest, tiny_paths: dict[str, Path], tmp_path: Path
) -> Iterator[StoredChats]:
    chats = StoredChats(tiny_paths[request.param], tmp_path / "kv")
    yield chats
    chats.close()


def test_text_that_another_build_of_the_library_read_is_read_again_and_told_why(
    chats: StoredChats, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats.ask(PROMPT, max_tokens=1)
    monkeypatch.setattr(loaded_model, "library_build", lambda: "a later build")
    chats.restart()
    run = chats.ask(PROMPT + "x", max_tokens=1)
    assert run.counts.restored_tokens == 0
    assert run.miss is not None
    assert (run.miss.reason, run.miss.position) == (MissReason.OTHER_MODEL_BUILD, 0)
    # From now on this build has it too.
    chats.restart()
    again = chats.ask(PROMPT + "xy", max_tokens=1)
    assert again.counts.restored_tokens > 0
    assert again.miss is None or again.miss.reason != MissReason.OTHER_MODEL_BUILD


def test_where_restoring_does_not_pay_one_file_is_read_to_measure_and_the_prompt_is_prefilled(
    chats: StoredChats, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats.ask(PROMPT, max_tokens=1)
    chats.restart()
    saved_s = 0.0

    def let_prefilling_pay(folder: Path, fingerprint: bytes) -> None:
        # One byte a second, a million tokens a second; and what is saved up for measuring.
        table = f'{{"{fingerprint.hex()[:32]}": [[0.0, 50.0], [13.8, 50.0], {saved_s}]}}'
        (folder / "rates.json").write_text(table)

    monkeypatch.setattr(stored_chats, "let_restoring_pay", let_prefilling_pay)
    run = chats.ask(PROMPT + "x", max_tokens=1)
    assert (run.counts.restored_tokens, run.bytes_read) == (0, 0)
    assert run.miss is not None
    assert run.miss.reason in (MissReason.NOT_RESTORED, MissReason.MESSAGE_ENDS_ONLY)
    chats.restart()
    saved_s = 1e9
    run = chats.ask(PROMPT + "xy", max_tokens=1)
    assert run.counts.restored_tokens == 0
    assert run.bytes_read in {entry.file_bytes for entry in chats.store._index.entries()}
