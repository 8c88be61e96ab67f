"""Processors, and the cores that may be used.

``os.cpu_count()`` ignores quotas. The number of usable cores is the minimum of

* the affinity of this process (which the kernel keeps inside its cpuset);
* the quota of its control group and of every ancestor, a part of a core being cut off, since
  a thread more than the quota is stopped for the rest of each period, and all others wait for it;
* what Slurm granted, which not every cluster enforces.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.cgroups import Cgroup, find_cgroups
from probes.hardware import CoreLimit, Cpu
from probes.kernel_files import (
    ROOT,
    parse_cpu_list,
    parse_int,
    read_cpu_list,
    read_int,
    read_table,
    read_text,
)

_INSTRUCTION_SETS = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_bf16": "avx512_bf16",
    "avx512_vnni": "avx512_vnni",
    "amx_tile": "amx_tile",
    "amx_bf16": "amx_bf16",
    "asimd": "neon",
    "sve": "sve",
    "sve2": "sve2",
    "bf16": "arm_bf16",
}
"""Flag in ``/proc/cpuinfo`` -> our name. The last four are of 64-bit Arm."""

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """Place of a logical core in the machine."""

    core_id: int
    siblings: tuple[int, ...]
    socket: int | None
    numa_node: int


def read_cpu(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Cpu:
    """Read the processors from ``/proc`` and ``/sys``."""
    online = read_cpu_list(root / "sys/devices/system/cpu/online")
    online = online or tuple(range(os.cpu_count() or 1))
    status = read_table(root / "proc/self/status")
    allowed = parse_cpu_list(status.get("Cpus_allowed_list")) or online
    if not (set(allowed) <= set(online) or set(online) <= set(allowed)):
        online = allowed  # lxcfs counts the cores of a container from 0, the kernel does not
    allowed = tuple(sorted(set(allowed) & set(online)))  # it may name some that are offline
    cores = _read_topology(online, root)
    limits = tuple(_find_limits(online, allowed, root, environ))
    usable_cores = min(limit.cores for limit in limits)
    quotas = [limit.quota_cores for limit in limits if limit.quota_cores is not None]
    best = _best_first([core for core in cores if core.core_id in allowed])[:usable_cores]
    about = _read_cpuinfo(root)
    flags = (about.get("flags") or about.get("Features") or "").split()
    sockets = {core.socket for core in cores if core.socket is not None}
    return Cpu(
        architecture=platform.machine(),
        model=about.get("model name") or _arm_model(about),
        logical_cores=len(online),
        physical_cores=len({core.siblings for core in cores}) if sockets else None,
        sockets=len(sockets) or None,
        numa_nodes=len(_read_numa_nodes(root)) or None,
        usable_cores=usable_cores,
        quota_cores=min(quotas, default=None),
        core_ids=tuple(core.core_id for core in best),
        core_homes=tuple((core.numa_node, min(core.siblings)) for core in best),
        may_pin=usable_cores == len(allowed),
        limits=limits,
        l1d_bytes=next(_cache_sizes(1, online[:1], root), None),
        l2_bytes=next(_cache_sizes(2, online[:1], root), None),
        l3_bytes=sum(_cache_sizes(3, online, root)) or None,
        instruction_sets=tuple(
            sorted({_INSTRUCTION_SETS[f] for f in flags if f in _INSTRUCTION_SETS})
        ),
    )


def _find_limits(
    online: Sequence[int], allowed: Sequence[int], root: Path, environ: Mapping[str, str]
) -> Iterator[CoreLimit]:
    yield CoreLimit(source="online cores", cores=len(online))
    for group in find_cgroups("cpuset", root):
        if (cores := _find_cpuset(group)) is not None:
            yield CoreLimit(
                source=f"cpuset of {group}", cores=max(1, len(set(cores) & set(online)))
            )
            break  # a group's cpuset lies within its ancestors'
    yield CoreLimit(source="affinity", cores=len(allowed))
    for group in find_cgroups("cpu", root):
        if (quota := _find_quota(group)) is not None:
            whole = max(1, int(quota))
            yield CoreLimit(source=f"quota of {group}", cores=whole, quota_cores=quota)
    # One rank uses the whole node, so the node's grant counts, not SLURM_CPUS_PER_TASK: a job of
    # 2 tasks x 4 cores on a node lets the one rank have 8. SLURM_JOB_CPUS_PER_NODE has the same
    # for all nodes, in the order of the node list.
    granted = parse_int(environ.get("SLURM_CPUS_ON_NODE"))
    if granted is not None and granted > 0:
        yield CoreLimit(source="Slurm (SLURM_CPUS_ON_NODE)", cores=granted)


def _find_cpuset(group: Cgroup) -> tuple[int, ...] | None:
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    return next(filter(None, (read_cpu_list(group.directory / name) for name in names)), None)


def _find_quota(group: Cgroup) -> float | None:
    """Give the cores' worth of time per period, ``None`` without a quota."""
    if group.version == 2:
        quota_text, _, period_text = (read_text(group.directory / "cpu.max") or "").partition(" ")
        quota_us, period_us = parse_int(quota_text), parse_int(period_text)
    else:
        quota_us = read_int(group.directory / "cpu.cfs_quota_us")
        period_us = read_int(group.directory / "cpu.cfs_period_us")
    if quota_us is None or quota_us <= 0 or not period_us:  # "max" in version 2, -1 in version 1
        return None
    return quota_us / period_us


def _read_topology(online: Sequence[int], root: Path) -> list[_Core]:
    numa_node_of = {core: node for node, cores in _read_numa_nodes(root).items() for core in cores}
    cores = []
    for core in online:
        topology = root / f"sys/devices/system/cpu/cpu{core}/topology"
        cores.append(
            _Core(
                core_id=core,
                siblings=read_cpu_list(topology / "thread_siblings_list") or (core,),
                socket=read_int(topology / "physical_package_id"),
                numa_node=numa_node_of.get(core, 0),
            )
        )
    return cores


def _read_numa_nodes(root: Path) -> dict[int, tuple[int, ...]]:
    nodes = {}
    for directory in (root / "sys/devices/system/node").glob("node[0-9]*"):
        if cores := read_cpu_list(directory / "cpulist"):  # a node may have memory only
            nodes[int(directory.name.removeprefix("node"))] = cores
    return nodes


def _best_first(cores: Sequence[_Core]) -> list[_Core]:
    present = {core.core_id for core in cores}

    def order(core: _Core) -> tuple[int, int, int]:
        thread = [sibling for sibling in core.siblings if sibling in present].index(core.core_id)
        return thread, core.numa_node, core.core_id

    return sorted(cores, key=order)


def _cache_sizes(level: int, cores: Sequence[int], root: Path) -> Iterator[int]:
    """Yield the size of each data cache of a level, a shared one once."""
    seen = set()
    for core in cores:
        for cache in sorted((root / f"sys/devices/system/cpu/cpu{core}/cache").glob("index*")):
            shared = read_text(cache / "shared_cpu_list") or str(core)
            if read_int(cache / "level") != level or shared in seen:
                continue
            if read_text(cache / "type") == "Instruction":
                continue
            seen.add(shared)
            if size := _parse_size(read_text(cache / "size") or ""):
                yield size


def _parse_size(text: str) -> int | None:
    count = parse_int(text.rstrip("KMG"))
    return None if count is None else count * _UNITS.get(text[-1:], 1)


def _read_cpuinfo(root: Path) -> dict[str, str]:
    """Give the entries of the first core: the file is long on a machine with many."""
    about: dict[str, str] = {}
    try:
        with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip() and about:
                    break
                name, _, value = line.partition(":")
                about[name.strip()] = value.strip()
    except OSError:
        pass
    return about


def _arm_model(about: Mapping[str, str]) -> str | None:
    if "CPU part" not in about:
        return None
    return f"Arm implementer {about.get('CPU implementer')} part {about['CPU part']}"
