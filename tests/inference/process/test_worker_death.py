"""Each way a worker can end has a name and something to do about it."""

import signal

import pytest

from inference.model_config import ModelConfig
from inference.process.worker_death import ENDED, HANG, OUT_OF_MEMORY, WorkerDeath, death_of

CONFIG = ModelConfig("/models/big.gguf")


def test_an_orderly_end_is_no_death() -> None:
    assert death_of(0, memory_ran_out=True) is None


def test_a_kill_is_for_want_of_memory_only_if_the_system_says_so() -> None:
    assert death_of(-signal.SIGKILL, memory_ran_out=False) == WorkerDeath("SIGKILL")
    assert death_of(-signal.SIGKILL, memory_ran_out=True) == WorkerDeath(OUT_OF_MEMORY)
    assert death_of(-signal.SIGSEGV, memory_ran_out=True) == WorkerDeath("SIGSEGV")
    assert death_of(3, memory_ran_out=False) == WorkerDeath("exit code 3")


@pytest.mark.parametrize(
    ("cause", "says", "advises"),
    [
        ("SIGSEGV", "SIGSEGV: a fault in", "fewer GPU layers"),
        ("SIGABRT", "gave up", "2,048 tokens"),
        ("SIGKILL", "SIGKILL: it was killed", "2,048 tokens"),
        (OUT_OF_MEMORY, "memory ran out", "smaller model"),
        ("SIGBUS", "could not be read", "download this one again"),
        ("SIGILL", "instruction that this processor does not have", "make run"),
        ("exit code 1", "(exit code 1)", "another model"),
        (HANG, "hung (no progress for 130 s)", "another model"),
    ],
)
def test_each_cause_is_named_with_a_suggestion(cause: str, says: str, advises: str) -> None:
    death = WorkerDeath(cause, stuck_s=130.0)
    for text in (death.while_loading(CONFIG), death.while_replying(CONFIG, None)):
        assert says in text
        assert advises in text
        assert "\n" not in text
    assert "big.gguf" in death.while_loading(CONFIG)
    assert "is kept" in death.while_replying(CONFIG, None)


def test_whoever_ended_the_engine_needs_no_advice() -> None:
    assert "try" not in WorkerDeath(ENDED).while_replying(CONFIG, None)
