"""Cores of a process of an exported plan, chosen where it runs, as ddlplan would choose them.

Exports hold the text of this file from its imports on, so it uses the standard library alone. Where
a plan was measured says nothing of the cores that a container or a batch job has elsewhere.
"""

import os
import re
from pathlib import Path


def pin(rank: int, processes: int, threads: int) -> None:
    """Pin this process to its part of the cores that it may use."""
    allowed = os.sched_getaffinity(0)
    # Else mpirun or srun has given each process its own.
    if processes == 1 or allowed == os.sched_getaffinity(os.getppid()):
        os.sched_setaffinity(0, own_cores(allowed, rank, processes, threads))


def own_cores(
    allowed: set[int], rank: int, processes: int, threads: int, root: Path = Path("/")
) -> list[int]:
    """Give a part of the allowed cores: whole ones first, neighbours together. Else all of them."""
    cores, wanted = sorted(allowed), processes * threads
    if rank >= processes or wanted > len(cores):  # more processes or threads than in the plan
        return cores
    if wanted < len(cores) and _has_time_only(len(cores), root):
        return cores
    homes = {core: _home(core, root) for core in cores}
    order = {  # second hardware threads last
        core: (sum(homes[core] == homes[one] for one in cores if one < core), homes[core][0], core)
        for core in cores
    }
    chosen = sorted(sorted(cores, key=order.__getitem__)[:wanted], key=homes.__getitem__)
    return chosen[rank * threads : (rank + 1) * threads]


def _home(core: int, root: Path) -> tuple[int, int]:
    """Give the NUMA node and the physical core of a core."""
    nodes = [int(f.parent.name[4:]) for f in root.glob(f"sys/devices/system/node/node*/cpu{core}")]
    siblings = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    first = re.match("[0-9]+", siblings.read_text()) if siblings.exists() else None
    return min(nodes, default=0), int(first[0]) if first else core


def _has_time_only(cores: int, root: Path) -> bool:
    """Tell whether a quota or Slurm grants fewer: all who then took the first cores shared them."""
    if int(os.environ.get("SLURM_CPUS_ON_NODE") or cores) < cores:
        return True
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, kinds, path = line.split(":", 2)
        group = root / "sys/fs/cgroup" / ("cpu" if "cpu" in kinds.split(",") else "") / path[1:]
        for folder in (group, *group.parents):
            files = (folder / f"cpu.{name}" for name in ("max", "cfs_quota_us", "cfs_period_us"))
            words = " ".join(file.read_text() for file in files if file.exists()).split()
            if len(words) == 2 and words[0].isdigit():  # not "max", not -1
                quota_us, period_us = map(int, words)
                if quota_us < cores * period_us:
                    return True
    return False
