"""Resources that processes use while they run, as pidstat shows them.

Read by our own code: psutil would open more files, during trials, and tests read recorded trees.
`probes.sampling` looks at the same processes again and again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT, parse_int, read_process_stat, read_table, read_text

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Unit of processor time in ``/proc``."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """The fields of ``/proc/<pid>/stat`` that are needed here; proc_pid_stat(5)."""

    pid: int
    parent: int
    group: int
    cpu_ticks: int


def resident_bytes(pids: Iterable[int], root: Path = ROOT) -> int | None:
    """Sum the memory of processes, pages that they share counted once.

    Sums the proportional set size: a page that n processes map counts 1/n for each. Where the
    kernel does not give it, as for another user's processes, the resident size is used, which
    counts shared pages n times. ``None`` where all of them have ended.
    """
    sizes = [size for pid in pids if (size := _process_bytes(root / f"proc/{pid}")) is not None]
    return sum(sizes) if sizes else None


def mapped_bytes(pids: Iterable[int], root: Path = ROOT) -> int:
    """Sum the resident sizes of processes, a shared page counted for each that maps it.

    An upper bound that costs the kernel nothing. For `resident_bytes` it walks through every page,
    which takes the time of a core: 10 ms per GiB.
    """
    statm = (read_text(root / f"proc/{pid}/statm") or "" for pid in pids)
    pages = (fields.split()[1:2] for fields in statm)
    return sum(int(found[0]) for found in pages if found) * PAGE_BYTES


def find_tree(pid: int, root: Path = ROOT) -> tuple[int, ...]:
    """Give ``pid`` and all its living descendants, parents first; empty when it has ended.

    A descendant whose parent has ended belongs to another tree now: `find_group` finds it still.
    """
    processes = list(_processes(root))
    first = [process for process in processes if process.pid == pid]
    return tuple(process.pid for process in _with_descendants(first, processes))


def find_group(*groups: int, root: Path = ROOT) -> tuple[int, ...]:
    """Give the living processes of process groups."""
    return tuple(process.pid for process in _processes(root) if process.group in groups)


def group_cpu_s(*groups: int, root: Path = ROOT) -> float:
    """Give the processor time of process groups, their descendants, and children that ended."""
    processes = list(_processes(root))
    members = [process for process in processes if process.group in groups]
    return sum(p.cpu_ticks for p in _with_descendants(members, processes)) / TICKS_PER_S


def cpu_s(pids: Iterable[int], root: Path = ROOT) -> float:
    """Give the processor time of processes, and of their children that have ended."""
    found = (_read_process(root / f"proc/{pid}") for pid in pids)
    return sum(process.cpu_ticks for process in found if process) / TICKS_PER_S


def interrupts_s(cores: Collection[int] | None = None, root: Path = ROOT) -> float:
    """Give the time that cores have spent in interrupts, which is where packets are handled.

    It is in no process's account, or in that of whoever was interrupted.

    Args:
        cores: Their numbers; those that this process may use where left out.
        root: Root of the file system to read from.
    """
    cores = os.sched_getaffinity(0) if cores is None else cores
    table = read_table(root / "proc/stat")
    rows = (table.get(f"cpu{core}", "").split() for core in cores)
    return sum(int(field) for row in rows for field in row[5:7]) / TICKS_PER_S


def _process_bytes(directory: Path) -> int | None:
    pss = read_table(directory / "smaps_rollup").get("Pss")
    if pss and (kib := parse_int(pss.removesuffix(" kB"))) is not None:
        return kib * 1024
    fields = (read_text(directory / "statm") or "").split()
    pages = parse_int(fields[1]) if len(fields) > 1 else None
    return None if pages is None else pages * PAGE_BYTES


def _with_descendants(first: list[_Process], every: list[_Process]) -> list[_Process]:
    found = {process.pid: process for process in first}
    family = list(found.values())
    for member in family:  # grows on the way
        children = [p for p in every if p.parent == member.pid and p.pid not in found]
        found |= {child.pid: child for child in children}
        family += children
    return family


def _processes(root: Path) -> Iterator[_Process]:
    for directory in (root / "proc").glob("[0-9]*"):
        if process := _read_process(directory):
            yield process


def _read_process(directory: Path) -> _Process | None:
    fields = read_process_stat(directory)
    if fields is None or len(fields) < 15:
        return None
    return _Process(
        pid=int(directory.name),
        parent=int(fields[1]),
        group=int(fields[2]),
        # own user and system time, and that of children which ended and were waited for
        cpu_ticks=sum(int(field) for field in fields[11:15]),
    )
