"""Time of an all-reduce, and what it takes from cores that compute meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from probes.busy_cores import BusyCores
from probes.errors import LinkProbeError
from probes.network.waiting import wait
from probes.timing import Measurement
from probes.usage import interrupts_s

if TYPE_CHECKING:
    from mpi4py import MPI

Doubles = np.ndarray[Any, np.dtype[np.float64]]
Floats = np.ndarray[Any, np.dtype[np.float32]]
SumInPlace = Callable[[Floats], None]
"""Replaces the numbers by their sum over all ranks; collective."""

_MIN_RUNS = 2
"""Of each kind, however long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Cost of a sum of numbers over all nodes."""

    message_bytes: int
    """Size of what each rank contributes."""

    ranks: int

    times: Measurement
    """Of the slowest rank, each time, with nothing beside it."""

    beside_s: float | None
    """Median of the same while every core of every node computes; ``None`` where some node could
    not be made to. A node with a part of a core is stopped again and again then, and the others
    wait for its part of the sum."""

    cpu_s: tuple[float, ...]
    """Processor time of one all-reduce, beside computing if that was measured, by rank: what
    training loses to it there."""

    interrupts_s: tuple[float, ...]
    """On top, by rank, the time in which the kernel handles packets. No quota limits it: it
    interrupts whoever runs."""


def measure_all_reduce(
    comm: MPI.Comm,
    message_bytes: int,
    *,
    sum_in_place: SumInPlace,
    repeats: int = 20,
    time_limit_s: float = 10.0,
) -> AllReduce:
    """Time an all-reduce over every rank of ``comm``, alone and beside computing.

    Collective: each rank of ``comm`` must make this call with the same arguments, or all of
    them wait for ever. Each repeat counts with the time of its slowest rank.

    Args:
        comm: Ranks to measure.
        message_bytes: Size of the buffer that each rank contributes, a multiple of 4 (float32).
        sum_in_place: The all-reduce that training uses.
        repeats: Timed runs of each kind, after warm-up.
        time_limit_s: About how long it may take: where one run takes long, fewer are made, but
            at least two of each kind.

    Raises:
        LinkProbeError: ``comm`` has one rank, so nothing crosses a link.
    """
    if comm.Get_size() < 2:
        raise LinkProbeError("ranks=1: measure an all-reduce between at least 2")
    numbers = np.zeros(max(message_bytes // 4, 1), dtype=np.float32)
    alone = spent = _time(comm, sum_in_place, numbers, time_limit_s / 2, repeats)
    beside_s = None
    with ExitStack() as stack:
        if _all_gather(comm, np.array([_start_busy_cores(stack)], np.float64)).all():
            spent = _time(comm, sum_in_place, numbers, time_limit_s / 2, repeats)
            beside_s = median(spent.times_s)
            wait(comm.Ibarrier())  # nobody stops computing while others still measure
    return AllReduce(
        message_bytes=numbers.nbytes,
        ranks=comm.Get_size(),
        times=Measurement(warmup_s=(alone.first_s,), samples_s=alone.times_s),
        beside_s=beside_s,
        cpu_s=spent.cpu_s,
        interrupts_s=spent.interrupts_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    first_s: float
    times_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    interrupts_s: tuple[float, ...]


def _time(comm: MPI.Comm, run: SumInPlace, numbers: Floats, limit_s: float, repeats: int) -> _Runs:
    first_s, _ = _time_once(comm, run, numbers)
    # All ranks have the same time of a run, so they agree on how many there are.
    count = int(min(max(limit_s / first_s - 1, _MIN_RUNS), repeats))
    found = [_time_once(comm, run, numbers) for _ in range(count)]
    # Interrupts are counted in ticks of up to 10 ms: few for one run.
    spent = np.sum([spent for _, spent in found], axis=0) / count
    cpu_s, interrupts_s = _all_gather(comm, spent).T.tolist()
    return _Runs(
        first_s=first_s,
        times_s=tuple(took_s for took_s, _ in found),
        cpu_s=tuple(cpu_s),
        interrupts_s=tuple(interrupts_s),
    )


def _time_once(comm: MPI.Comm, run: SumInPlace, numbers: Floats) -> tuple[float, Doubles]:
    """Give the time of the slowest rank, and the usage of this one by `_read_cpu_usage`."""
    wait(comm.Ibarrier())
    comm.Barrier()  # those that polled last come in a little later
    spent, started = _read_cpu_usage(), time.perf_counter()
    run(numbers)
    took = np.array([time.perf_counter() - started])
    spent = _read_cpu_usage() - spent
    return float(_all_gather(comm, took).max()), spent


def _read_cpu_usage() -> Doubles:
    """Give processor time of this rank, and time of interrupts on the cores that it may use."""
    return np.array([time.process_time(), interrupts_s()])


def _start_busy_cores(stack: ExitStack) -> bool:
    """Keep all cores busy until ``stack`` is left; return whether they compute."""
    try:
        stack.enter_context(BusyCores())
    except LinkProbeError:
        return False
    return True


def _all_gather(comm: MPI.Comm, numbers: Doubles) -> Doubles:
    """Give the numbers of all ranks, in rows."""
    mine = np.zeros((comm.Get_size(), len(numbers)))
    mine[comm.Get_rank()] = numbers
    every = np.empty_like(mine)
    wait(comm.Iallreduce(mine, every))
    return every
