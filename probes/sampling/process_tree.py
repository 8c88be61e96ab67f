"""Process tree while it runs: its processor time, memory and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT
from probes.sampling.pace import Pace
from probes.usage import PAGE_BYTES, TICKS_PER_S, find_tree

_SEARCH_EVERY_S, _SEARCH_PART = 2.0, 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUse:
    """What the processes of a tree use."""

    processes: int
    threads: int

    memory_bytes: int | None
    """An estimate: `ProcessTree` says of what."""

    cpu_s: float
    """Processor time since the first look at the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """Fields of ``/proc/<pid>/stat`` and ``/proc/<pid>/statm``."""

    parent: int
    started_ticks: int
    cpu_ticks: int
    """Its own, and those of its children that have ended."""
    threads: int
    stack_start: int
    """Address that the kernel draws when a program starts: a process that was forked has that of
    its parent. 0 where the kernel does not tell."""
    private_bytes: int
    shared_bytes: int


class ProcessTree:
    """A process and its descendants.

    Memory is the sum of the private pages, and the shared pages of the process that has most of
    them: gradients, parameters and decoded pictures are in memory that all workers map. A process
    that was forked counts with what it has beyond its parent: most of the rest is still the
    parent's own, and what it has written of that is left out. `bench/usage.py` holds it against the
    proportional set size, which is exact, and for which the kernel walks through every page: 10 ms
    per GiB, in which the process can map no memory.

    New processes are looked for at a pace of their own, and in between known ones are read alone:
    a process has a file of children for each of its threads.
    """

    def __init__(self, pid: int, root: Path = ROOT, search: Pace | None = None) -> None:
        self._pid = pid
        self._root = root
        self._search = search or Pace(_SEARCH_EVERY_S, _SEARCH_PART)
        self._members: Mapping[int, _Member] | None = None
        self._ticks = 0

    def sample(self) -> TreeUse:
        """Read what the processes use now."""
        earlier = self._members
        pids: set[int] = set(earlier or ())
        if self._search.is_due:
            with self._search.working():
                pids.update(self._find_all())
        found = {pid: _read_member(f"{self._root}/proc/{pid}") for pid in pids}
        members = {pid: member for pid, member in found.items() if member is not None}
        if earlier is not None:
            self._ticks += _ticks_between(earlier, members)
        self._members = members
        shared = max((member.shared_bytes for member in members.values()), default=0)
        return TreeUse(
            processes=len(members),
            threads=sum(member.threads for member in members.values()),
            memory_bytes=_private_bytes(members) + shared or None,
            cpu_s=self._ticks / TICKS_PER_S,
        )

    def _find_all(self) -> Iterator[int]:
        left = [self._pid]
        if not os.path.exists(self._children_file(self._pid, self._pid)):  # noqa: PTH110 - as below
            # a kernel that does not list children: https://docs.kernel.org/filesystems/proc.html
            yield from find_tree(self._pid, self._root)
            return
        while left:
            yield (pid := left.pop())
            for thread in _list(f"{self._root}/proc/{pid}/task"):
                left += map(int, _read(self._children_file(pid, thread)).split())

    def _children_file(self, pid: int, thread: int | str) -> str:
        return f"{self._root}/proc/{pid}/task/{thread}/children"


def _private_bytes(members: Mapping[int, _Member]) -> int:
    total = 0
    for member in members.values():
        total += member.private_bytes
        parent = members.get(member.parent)
        if parent is not None and member.stack_start == parent.stack_start != 0:
            total -= min(member.private_bytes, parent.private_bytes)
    return total


def _ticks_between(earlier: Mapping[int, _Member], later: Mapping[int, _Member]) -> int:
    """Give the processor time between two looks.

    The time of a process that has ended is in its parent's account from then on: what was counted
    of it before must not count again.
    """
    ticks = 0
    for pid, member in later.items():
        before = earlier.get(pid)
        is_same = before is not None and before.started_ticks == member.started_ticks
        ticks += member.cpu_ticks - (before.cpu_ticks if before is not None and is_same else 0)
    for pid, member in earlier.items():
        if pid not in later and member.parent in later and member.parent in earlier:
            ticks -= member.cpu_ticks
    return max(0, ticks)


def _read_member(directory: str) -> _Member | None:
    # the name in brackets may hold spaces and brackets: what follows the last one is regular
    fields = _read(f"{directory}/stat").rpartition(b")")[2].split()
    sizes = _read(f"{directory}/statm").split()
    if len(fields) < 26 or len(sizes) < 3:
        return None
    resident, shared = int(sizes[1]), int(sizes[2])
    return _Member(
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_ticks=sum(map(int, fields[11:15])),
        threads=int(fields[17]),
        stack_start=int(fields[25]),
        private_bytes=(resident - shared) * PAGE_BYTES,
        shared_bytes=shared * PAGE_BYTES,
    )


def _read(path: str) -> bytes:
    """Read a small file, empty where it is gone; `Path.read_text` takes three times as long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the process has ended since
        return b""
    finally:
        os.close(descriptor)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - likewise
    except OSError:
        return []
