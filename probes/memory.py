"""Memory: how much there is, how much may be used, and kills for lack of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from probes.cgroups import Cgroup, find_cgroups
from probes.hardware import Memory, MemoryLimit
from probes.kernel_files import ROOT, parse_int, read_int, read_table

_MIB = 2**20


def read_memory(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Memory:
    """Read memory, its limits and ``/dev/shm``."""
    sizes = read_table(root / "proc/meminfo")
    total_bytes = _kib(sizes, "MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf(
        "SC_PAGE_SIZE"
    )
    limits = tuple(
        limit for limit in _find_limits(root, environ) if limit.limit_bytes < total_bytes
    )
    shm_bytes, shm_free_bytes = _read_shm(root)
    return Memory(
        total_bytes=total_bytes,
        available_bytes=_kib(sizes, "MemAvailable"),
        usable_bytes=min([total_bytes, *(limit.limit_bytes for limit in limits)]),
        limits=limits,
        swap_bytes=_kib(sizes, "SwapTotal"),
        swap_free_bytes=_kib(sizes, "SwapFree"),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
    )


def oom_kill_count(root: Path = ROOT) -> int | None:
    """Count how often the kernel has killed a process of our control group to free memory.

    Read it before and after a run: a higher count means that memory was short. The kernel counts
    for the victim's group, whichever ancestor's limit was hit. Without such a group (the top of
    version 2 has no counter) the count of the whole machine is given; ``None`` without that.
    """
    for group in find_cgroups("memory", root):
        for name in ("memory.events", "memory.oom_control"):
            count = parse_int(read_table(group.directory / name).get("oom_kill"))
            if count is not None:
                return count
    return parse_int(read_table(root / "proc/vmstat").get("oom_kill"))


def _find_limits(root: Path, environ: Mapping[str, str]) -> Iterator[MemoryLimit]:
    for group in find_cgroups("memory", root):
        limits_bytes = [limit for limit in _group_limits(group) if limit is not None]
        if limits_bytes:
            yield MemoryLimit(source=str(group), limit_bytes=min(limits_bytes))
    if granted_mib := parse_int(environ.get("SLURM_MEM_PER_NODE")):  # 0 means all of it
        yield MemoryLimit(source="Slurm (SLURM_MEM_PER_NODE)", limit_bytes=granted_mib * _MIB)
    per_core_mib = parse_int(environ.get("SLURM_MEM_PER_CPU"))
    cores = parse_int(environ.get("SLURM_CPUS_ON_NODE"))
    if per_core_mib and cores:
        source = "Slurm (SLURM_MEM_PER_CPU * SLURM_CPUS_ON_NODE)"
        yield MemoryLimit(source=source, limit_bytes=per_core_mib * cores * _MIB)


def _group_limits(group: Cgroup) -> Iterator[int | None]:
    if group.version == 2:  # "max" where there is none
        yield read_int(group.directory / "memory.max")
        # above this one processes are slowed down until they hardly move
        yield read_int(group.directory / "memory.high")
        return
    yield read_int(group.directory / "memory.limit_in_bytes")
    # this one also knows of ancestors that a container cannot see
    stat = read_table(group.directory / "memory.stat")
    yield parse_int(stat.get("hierarchical_memory_limit"))


def _kib(sizes: Mapping[str, str], name: str) -> int | None:
    kib = parse_int(sizes.get(name, "").removesuffix(" kB"))
    return None if kib is None else kib * 1024


def _read_shm(root: Path) -> tuple[int | None, int | None]:
    try:
        shm = os.statvfs(root / "dev/shm")
    except OSError:
        return None, None
    return shm.f_blocks * shm.f_frsize, shm.f_bavail * shm.f_frsize
