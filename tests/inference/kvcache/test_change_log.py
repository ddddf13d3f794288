from datetime import date
from pathlib import Path

import pytest

from inference.kvcache.block import BlockHash, Checkpoint, checkpoint_name
from inference.kvcache.change_log import ChangeLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "changes.log"


def evicted(number: int) -> Checkpoint:
    return Checkpoint("f", checkpoint_name(number, "turn", hash_of(number)), 0, 0)


def hash_of(number: int) -> BlockHash:
    return BlockHash(f"{number:032x}")


def test_its_lines_are_pinned(path: Path) -> None:
    log, today = ChangeLog(path), date.today().isoformat()
    log.append_written(123)
    log.append_evicted(evicted(7))
    log.append_removed()
    assert path.read_text() == f"{today} +123\n{today} -0000007-{hash_of(7)}\n{today} x\n"


def test_what_another_process_appends_is_seen_and_what_this_one_does_is_not(path: Path) -> None:
    mine, theirs = ChangeLog(path), ChangeLog(path)
    for log in (mine, theirs):
        log.mark_known()
    mine.append_written(1)
    assert (mine.changed_by_others(), theirs.changed_by_others()) == (False, True)
    theirs.mark_known()
    theirs.append_removed()
    mine.append_removed()
    assert (mine.changed_by_others(), theirs.changed_by_others()) == (True, True)


def test_a_lost_log_counts_as_a_change(path: Path) -> None:
    log = ChangeLog(path)
    log.append_written(1)
    log.mark_known()
    path.unlink()
    assert log.changed_by_others()


def test_days_are_added_up_and_today_told_apart(path: Path) -> None:
    path.write_text("2020-01-01 +5\n2020-01-02 +6\n")
    log = ChangeLog(path)
    log.append_written(7)
    assert (log.bytes_written_today(), log.bytes_written_total()) == (7, 18)


@pytest.mark.parametrize(
    "junk", ["\0\0\n", "2020-01-01 +x\n", "2020-01-01 -\n", "\n\n", "ü\n", "2020-01-01 +³\n", "+"]
)
def test_damaged_lines_are_skipped(path: Path, junk: str) -> None:
    path.write_text(f"2020-01-01 +5\n{junk}", encoding="utf-8")
    log = ChangeLog(path)
    assert log.bytes_written_total() == 5
    log.append_written(1)
    assert log.bytes_written_total() >= 5


def test_the_latest_evictions_are_remembered(path: Path) -> None:
    log = ChangeLog(path)
    for number in range(2100):
        log.append_evicted(evicted(number))
    ends = ChangeLog(path).evicted_ends()
    assert ends[2099] == {hash_of(2099)}
    assert len(ends) == 2000


def test_a_long_log_is_made_short_without_losing_its_sums(path: Path) -> None:
    lines = "".join(f"2020-01-{1 + number % 28:02d} +10\n" for number in range(20_000))
    path.write_text(lines)
    log = ChangeLog(path)
    log.append_evicted(evicted(1))
    assert path.stat().st_size < 2000
    assert log.bytes_written_total() == ChangeLog(path).bytes_written_total() == 200_000
    assert log.evicted_ends() == {1: {hash_of(1)}}


def test_making_it_short_is_a_change_to_others(path: Path) -> None:
    running = ChangeLog(path)
    running.append_written(1)
    path.write_text(path.read_text() + "2020-01-01 +10\n" * 20_000)
    running.mark_known()
    assert running.bytes_written_total() == 200_001
    ChangeLog(path)
    assert running.changed_by_others()
    assert running.bytes_written_total() == 200_001


def test_a_log_that_cannot_be_written_is_done_without(path: Path) -> None:
    path.mkdir()
    log = ChangeLog(path)
    log.append_written(5)
    assert (log.bytes_written_total(), log.evicted_ends()) == (0, {})
