"""A rank that sums numbers over all hosts in the way that it is asked to, and tells what it took.

Rank 0 first prints the names of all ways, then answers requests on its standard input, a line of
JSON each: whether all cores shall compute from now on, or a way, how many bytes, how often. The
argument is the address at which the others reach rank 0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from _sum_ways import Floats, SumInPlace, all_ways
from mpi4py import MPI

from launch.mpi.ranks import Ranks
from probes.busy_cores import BusyCores
from probes.network.waiting import wait
from probes.usage import interrupts_s

_WARMUP_NUMBERS = 1 << 18
"""Summed before a turn: connections that were idle begin slowly, and some ways share theirs."""


def main() -> None:
    """Answer until standard input is closed."""
    comm = MPI.COMM_WORLD
    ranks = Ranks(comm)
    ways = all_ways(comm, sys.argv[1])
    if comm.rank == 0:
        print(json.dumps(list(ways)), flush=True)
    numbers = Numbers(comm, 4)
    with ExitStack() as computing:
        for request in _requests(ranks):
            if (computes := request.get("computes")) is not None:
                computing.close()
                found = {"computes": bool(computes and computing.enter_context(BusyCores()))}
            else:
                if numbers.num_bytes != request["bytes"]:
                    numbers = Numbers(comm, request["bytes"])
                found = _measure(comm, numbers, ways[request["way"]], request["repeats"])
            everybody = ranks.all_gather(json.dumps(found).encode())
            if comm.rank == 0:
                print(json.dumps([json.loads(one) for one in everybody]), flush=True)


class Numbers:
    """What this rank contributes to a sum, and what the sum must be.

    Small whole numbers: every order of adding them up gives the same sum, to the last bit.
    """

    def __init__(self, comm: MPI.Comm, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        pattern = np.resize(np.arange(1021, dtype=np.float32), num_bytes // 4)
        self._own = pattern + comm.rank
        self._sum = pattern * comm.size + comm.size * (comm.size - 1) // 2
        self.memory = np.empty_like(self._own)

    def reset(self) -> Floats:
        """Give the contribution, to be replaced by the sum."""
        self.memory[:] = self._own
        return self.memory

    def is_right(self) -> bool:
        """Whether the sum is there."""
        return np.array_equal(self.memory, self._sum)


def _measure(comm: MPI.Comm, numbers: Numbers, way: SumInPlace, repeats: int) -> dict[str, Any]:
    way(numbers.reset()[:_WARMUP_NUMBERS])
    times_s = []
    processor_s = kernel_s = 0.0
    for _ in range(repeats):
        memory = numbers.reset()
        wait(comm.Ibarrier())
        comm.Barrier()  # those who looked last come in a little later
        kernel, used, began = _kernel_s(), time.process_time(), time.perf_counter()
        way(memory)
        times_s.append(time.perf_counter() - began)
        processor_s += time.process_time() - used
        wait(comm.Ibarrier())  # what others still wait for is sent meanwhile
        kernel_s += _kernel_s() - kernel
    return {
        "times_s": times_s,
        "processor_s": processor_s / repeats,
        "kernel_s": kernel_s / repeats,
        "is_right": numbers.is_right(),
    }


def _kernel_s() -> float:
    """Give the time of interrupts, in which packets are handled, on all cores of the machine."""
    return interrupts_s(range(os.cpu_count() or 1))


def _requests(ranks: Ranks) -> Iterator[dict[str, Any]]:
    while line := ranks.broadcast(sys.stdin.readline().encode() if ranks.rank == 0 else b""):
        yield json.loads(line)


if __name__ == "__main__":
    main()
