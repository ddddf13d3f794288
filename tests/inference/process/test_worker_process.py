"""What a worker runs in."""

from inference.process.worker_process import worker_environment


def test_a_native_abort_starts_no_debugger() -> None:
    assert worker_environment({})["GGML_NO_BACKTRACE"] == "1"


def test_nothing_that_changes_the_meaning_of_rows_is_inherited() -> None:
    assert "LLAMA_ATTN_ROT_DISABLE" not in worker_environment({"LLAMA_ATTN_ROT_DISABLE": "1"})


def test_threads_that_wait_at_a_barrier_spin_briefly_unless_the_user_wants_otherwise() -> None:
    assert int(worker_environment({})["GOMP_SPINCOUNT"]) <= 1000
    assert worker_environment({"GOMP_SPINCOUNT": "7"})["GOMP_SPINCOUNT"] == "7"


def test_the_packages_of_this_process_come_first() -> None:
    path = worker_environment({"PYTHONPATH": "elsewhere"})["PYTHONPATH"]
    assert path.endswith("elsewhere")
    assert not path.startswith("elsewhere")
