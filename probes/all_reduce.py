"""How long does an all-reduce take, and what does it take from cores that compute meanwhile?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from probes.busy_cores import BusyCores
from probes.errors import LinkProbeError
from probes.mpi_waiting import wait
from probes.timing import Measurement
from probes.usage import interrupts_s

if TYPE_CHECKING:
    from mpi4py import MPI

Floats = np.ndarray[Any, np.dtype[np.float32]]
SumInPlace = Callable[[Floats], None]
"""Replaces the numbers by their sum over all ranks; collective."""

_FEWEST_RUNS = 2
"""Of each kind, however long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """What it takes to sum numbers over all nodes."""

    message_bytes: int
    """Size of what each rank contributes."""

    ranks: int

    times: Measurement
    """Of the slowest rank, each time, with nothing beside it."""

    beside_s: float
    """Median of the same while every core of every node computes. A node that may use a part of a
    core is stopped again and again then, and the others wait for its part of the sum."""

    cpu_s: float
    """Processor time of one all-reduce beside computing, of the rank that spends the most: what
    training loses to it."""

    interrupts_s: float
    """On top, the time in which the kernel handles packets, where it takes the most. No quota
    limits it: it interrupts whoever runs."""


class _Run(NamedTuple):
    """What one run took, of each the most that a rank had."""

    wall_s: float
    cpu_s: float
    interrupts_s: float


def measure_all_reduce(
    comm: MPI.Comm,
    message_bytes: int,
    *,
    sum_in_place: SumInPlace | None = None,
    repeats: int = 20,
    time_limit_s: float = 10.0,
) -> AllReduce:
    """Time an all-reduce over every rank of ``comm``, alone and beside computing.

    Collective: each rank of ``comm`` must make this call with the same arguments, or all of
    them wait for ever. Each repeat counts with the time of its slowest rank.

    Args:
        comm: Ranks to measure.
        message_bytes: Size of the buffer that each rank contributes, a multiple of 4 (float32).
        sum_in_place: The all-reduce that training uses; MPI's own where it is left out.
        repeats: Timed runs of each kind, after warm-up.
        time_limit_s: About how long it may take: where one run takes long, fewer are made, but
            at least two of each kind.

    Raises:
        LinkProbeError: ``comm`` has one rank, so nothing crosses a link; or nothing can be made to
            compute beside it.
    """
    if comm.Get_size() < 2:
        raise LinkProbeError("ranks=1: measure an all-reduce between at least 2")
    numbers = np.zeros(max(message_bytes // 4, 1), dtype=np.float32)
    run = sum_in_place or _mpi_sum(comm, numbers)
    first_s = _time(comm, run, numbers).wall_s
    runs = _runs_within(time_limit_s / 2 - first_s, first_s, repeats)
    alone_s = [_time(comm, run, numbers).wall_s for _ in range(runs)]
    with BusyCores():
        warm_s = _time(comm, run, numbers).wall_s
        runs = _runs_within(time_limit_s / 2 - warm_s, warm_s, repeats)
        beside = [_time(comm, run, numbers) for _ in range(runs)]
        wait(comm.Ibarrier())  # nobody stops computing while others still measure
    return AllReduce(
        message_bytes=numbers.nbytes,
        ranks=comm.Get_size(),
        times=Measurement(warmup_s=(first_s,), samples_s=tuple(alone_s)),
        beside_s=median(run.wall_s for run in beside),
        cpu_s=median(run.cpu_s for run in beside),
        interrupts_s=median(run.interrupts_s for run in beside),
    )


def _runs_within(limit_s: float, run_s: float, repeats: int) -> int:
    """Give how often to run; all ranks have the same time of a run, so they agree."""
    return int(min(max(limit_s / run_s, _FEWEST_RUNS), repeats))


def _mpi_sum(comm: MPI.Comm, like: Floats) -> SumInPlace:
    total = np.empty_like(like)

    def run(numbers: Floats) -> None:
        comm.Allreduce(numbers, total)
        numbers[:] = total

    return run


def _time(comm: MPI.Comm, run: SumInPlace, numbers: Floats) -> _Run:
    wait(comm.Ibarrier())
    comm.Barrier()  # those who looked last come in a little later
    before = _clocks()
    run(numbers)
    took = np.zeros((comm.Get_size(), len(before)))
    took[comm.Get_rank()] = _clocks() - before
    every = np.empty_like(took)
    wait(comm.Iallreduce(took, every))
    return _Run(*map(float, every.max(axis=0)))


def _clocks() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Give what `_Run` has the differences of."""
    return np.array([time.perf_counter(), time.process_time(), interrupts_s()])
