"""How many threads decode by default: the physical cores this process may really use."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def default_threads(
    cgroup_root: Path = Path("/sys/fs/cgroup"), cpu_root: Path = Path("/sys/devices/system/cpu")
) -> int:
    """Physical cores within this process's affinity mask and its cgroup's CPU quota; at least 1.

    A thread more than there are cores makes every step wait for the one that was not scheduled.
    """
    cores = _physical_cores_in_affinity(cpu_root)
    quota = _cgroup_quota(cgroup_root)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _physical_cores_in_affinity(cpu_root: Path) -> int:
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows: no per-process topology to read
        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    logical = os.sched_getaffinity(0)
    siblings = set()
    for cpu in logical:
        try:
            siblings.add((cpu_root / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            siblings.add(f"cpu{cpu}")
    return len(siblings)


def _cgroup_quota(cgroup_root: Path) -> float | None:
    """CPUs that the cgroup (v2, then v1) grants, over all of its parents; None: no limit or no cgroups."""
    quotas = []
    for folder in _own_cgroups(cgroup_root):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            pass
    try:
        v1 = cgroup_root / "cpu"
        quota_us = int((v1 / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            quotas.append(quota_us / int((v1 / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return min(quotas, default=None)


def _own_cgroups(cgroup_root: Path) -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [cgroup_root]
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = cgroup_root / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(cgroup_root))]
