"""Sampler of a host: what a tree of processes, the machine and GPUs use, about once a second."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import ROOT
from probes.sampling.gpus import GpuSampler, GpuUse
from probes.sampling.machine import MachineCounters, read_counters
from probes.sampling.pace import Pace
from probes.sampling.process_tree import ProcessTree, TreeUse

PART = 0.0005
"""Of a core that samples may take. The search for new processes takes as much again at most: in
all below 0.1 % of a core, whatever the machine. `bench/usage.py` shows what they do take."""

_SHORTEST_S = 0.1
"""The kernel counts in hundredths of a second: rates over less would be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """What was used since the sample before; memory, processes and threads as they are now."""

    elapsed_s: float
    busy_cores: float
    """Cores that the processes used, on average."""

    machine_busy_cores: float
    io_wait_cores: float
    received_bytes_per_s: float
    sent_bytes_per_s: float
    processes: int
    threads: int
    memory_bytes: int | None
    gpus: tuple[GpuUse, ...] = ()


class HostSampler:
    """Samples when it is asked to and a sample is due: it has no thread of its own.

    Args:
        pid: First process of the tree.
        gpu_uuids: GPUs to sample.
        every_s: Time between two samples, at least.
        root: Root of the file system to read from.
        clock: Tells the time.
    """

    def __init__(
        self,
        pid: int,
        *,
        gpu_uuids: Sequence[str] = (),
        every_s: float = 1.0,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._clock = clock
        self._pace = Pace(every_s, PART, clock=clock)
        self._tree = ProcessTree(pid, root)
        self._gpus = GpuSampler(gpu_uuids)
        self._earlier = self._read()

    def poll(self, *, is_last: bool = False) -> HostUse | None:
        """Take a sample where one is due, or where it is the last one.

        Returns:
            What was used since the one before; ``None`` where none is due.
        """
        is_due = self._pace.is_due
        if is_last:
            is_due = self._clock() - self._earlier[0] >= _SHORTEST_S
        if not is_due:
            return None
        earlier = self._earlier
        self._earlier = self._read()
        return _between(earlier, self._earlier)

    def close(self) -> None:
        """End sampling."""
        self._gpus.close()

    def _read(self) -> _Sample:
        with self._pace.working():
            tree, counters = self._tree.sample(), read_counters(self._root)
            return self._clock(), tree, counters, self._gpus.sample()


_Sample = tuple[float, TreeUse, MachineCounters, tuple[GpuUse, ...]]


def _between(earlier: _Sample, later: _Sample) -> HostUse:
    (began, tree_before, before, _), (ended, tree, after, gpus) = earlier, later
    elapsed_s = max(ended - began, 1e-9)

    def rate(first: float, second: float) -> float:
        return max(0.0, second - first) / elapsed_s  # a counter falls where an interface is removed

    # a process that is found seconds after its start brings the time of these seconds with it
    most = float(os.cpu_count() or math.inf)
    return HostUse(
        elapsed_s=elapsed_s,
        busy_cores=min(most, rate(tree_before.cpu_s, tree.cpu_s)),
        machine_busy_cores=min(most, rate(before.busy_s, after.busy_s)),
        io_wait_cores=rate(before.io_wait_s, after.io_wait_s),
        received_bytes_per_s=rate(before.received_bytes, after.received_bytes),
        sent_bytes_per_s=rate(before.sent_bytes, after.sent_bytes),
        processes=tree.processes,
        threads=tree.threads,
        memory_bytes=tree.memory_bytes,
        gpus=gpus,
    )
