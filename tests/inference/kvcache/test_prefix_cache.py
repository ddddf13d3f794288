import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inference.kvcache.fingerprint import Fingerprint
from inference.kvcache.prefix_cache import PrefixCache, default_budget_bytes
from inference.kvcache.reuse import ReuseRule, token_array

FULL_ATTENTION = ReuseRule()
FINGERPRINT = Fingerprint(bytes(32))


def put(cache: PrefixCache, ids: list[int], size: int = 1000, rule: ReuseRule = FULL_ATTENTION) -> None:
    cache.store(FINGERPRINT, token_array(ids), 0, np.zeros(size, dtype=np.uint8), rule)
    assert cache.flush(30)


def hit(cache: PrefixCache, ids: list[int]) -> int:
    match = cache.match_prefix(FINGERPRINT, token_array(ids), ReuseRule(), max_hit_length=len(ids) - 1)
    return match.num_cached_tokens if match else 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_what_was_handed_over_is_found_after_a_restart(tmp_path: Path) -> None:
    cache = PrefixCache(tmp_path, None, pytest.fail)
    put(cache, [1, 2, 3])
    cache.close(30)
    assert hit(PrefixCache(tmp_path, None, pytest.fail), [1, 2, 3, 4]) == 3


def test_a_turn_takes_the_place_of_the_one_it_extends(tmp_path: Path) -> None:
    cache = PrefixCache(tmp_path, None, pytest.fail)
    put(cache, [1, 2, 3])
    put(cache, [1, 2, 3, 4, 5])
    assert len(list(tmp_path.glob("*.kvseq"))) == 1


def test_states_that_cannot_be_cut_stay_beside_the_longer_one(tmp_path: Path) -> None:
    cache = PrefixCache(tmp_path, None, pytest.fail)
    put(cache, [1, 2, 3], rule=ReuseRule(recurrent=True))
    put(cache, [1, 2, 3, 4, 5], rule=ReuseRule(recurrent=True))
    assert len(list(tmp_path.glob("*.kvseq"))) == 2


def test_the_budget_is_kept(tmp_path: Path) -> None:
    cache = PrefixCache(tmp_path, 5000, pytest.fail)
    for token in range(10):
        put(cache, [token] * 4)
    assert 0 < cache.store_bytes <= 5000
    assert hit(cache, [9, 9, 9, 9, 0]) == 4
    assert hit(cache, [0, 0, 0, 0, 9]) == 0


def test_a_full_disk_is_told_once_and_leaves_no_rest(small_disk: Path) -> None:
    notices: list[str] = []
    cache = PrefixCache(small_disk / "kv", 10**9, notices.append)
    put(cache, [1], size=2_000_000)
    put(cache, [2], size=2_000_000)
    assert len(notices) == 1
    assert "No space left on device" in notices[0]
    assert list((small_disk / "kv").iterdir()) == []
    put(cache, [3], size=1000)
    assert hit(cache, [3, 4]) == 1


def test_a_read_only_store_is_still_read(small_disk: Path) -> None:
    notices: list[str] = []
    put(PrefixCache(small_disk, 10**9, pytest.fail), [1, 2, 3])
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    cache = PrefixCache(small_disk, 10**9, notices.append)
    assert hit(cache, [1, 2, 3, 4]) == 3
    put(cache, [5, 6])
    assert len(notices) == 1
    assert "Read-only file system" in notices[0]


def test_the_default_budget_is_a_tenth_of_the_free_disk(small_disk: Path) -> None:
    assert 0 < default_budget_bytes(small_disk / "not" / "there yet") <= 2**20 // 10
