import os
import subprocess
import sys
from pathlib import Path

import pytest

from inference.cpu_threads import default_threads


def write_cpus(root: Path, siblings: list[str]) -> Path:
    for cpu, text in enumerate(siblings):
        topology = root / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(text + "\n")
    return root


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)


@pytest.mark.usefixtures("affinity")
def test_hyperthreads_of_one_core_count_once(tmp_path: Path) -> None:
    cpus = write_cpus(tmp_path / "cpu", ["0,2", "1,3", "0,2", "1,3"])
    assert default_threads(tmp_path / "no cgroup", cpus) == 2


@pytest.mark.usefixtures("affinity")
@pytest.mark.parametrize(
    ("cpu_max", "threads"), [("150000 100000", 1), ("300000 100000", 3), ("max 100000", 4), ("junk", 4)]
)
def test_a_cgroup_quota_limits_threads(tmp_path: Path, cpu_max: str, threads: int) -> None:
    cpus = write_cpus(tmp_path / "cpu", ["0", "1", "2", "3"])
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "cpu.max").write_text(cpu_max)
    assert default_threads(cgroup, cpus) == threads


@pytest.mark.usefixtures("affinity")
def test_a_version_1_quota_limits_threads(tmp_path: Path) -> None:
    cpus = write_cpus(tmp_path / "cpus", ["0", "1", "2", "3"])
    (tmp_path / "cgroup" / "cpu").mkdir(parents=True)
    (tmp_path / "cgroup" / "cpu" / "cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cgroup" / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert default_threads(tmp_path / "cgroup", cpus) == 2


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks on this system")
def test_a_process_bound_to_one_cpu_uses_one_thread() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
    code += "from inference.cpu_threads import default_threads; print(default_threads())"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "1\n"
    )
