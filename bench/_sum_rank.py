"""A rank that adds up memory of a model's size, and nothing else: what the network alone takes.

Rank 0 prints one line of JSON, of each sum: seconds, processor seconds of the rank that took most,
seconds for which a rank's cores were not idle, the mean over the ranks, and the bytes sent.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
import psutil
from mpi4py import MPI

from launch.gradient_sync.allreduce.buckets import BUCKET_BYTES
from launch.gradient_sync.allreduce.encoded_sum import make_sum


def main() -> None:
    """Add up so many bytes, so many times."""
    num_bytes, repeats = map(int, sys.argv[1:])
    comm = MPI.COMM_WORLD
    memory = np.ones(num_bytes // 4, np.float32)
    step = BUCKET_BYTES // 4
    blocks = [memory[low : low + step] for low in range(0, len(memory), step)]
    adder = make_sum(comm)
    found = []
    for _ in range(repeats + 1):
        memory[:] = 1
        comm.Barrier()
        began, used, idle = time.perf_counter(), time.process_time(), _idle_s()
        adder.sum_all(blocks)
        took, used, idle = time.perf_counter() - began, time.process_time() - used, _idle_s() - idle
        found.append((took, used, took * len(os.sched_getaffinity(0)) - idle))
        assert memory[0] == memory[-1] == comm.size
    everybody = np.empty((comm.size, repeats, len(found[0])), np.float64)
    comm.Gather(np.array(found[1:]), everybody if comm.rank == 0 else None)
    if comm.rank == 0:
        line = {
            "times_s": [took for took, *_ in found[1:]],
            "processor_s": everybody[..., 1].max(0).tolist(),
            "busy_s": everybody[..., 2].mean(0).tolist(),
            "bytes": adder.sent_bytes // (repeats + 1),
        }
        print(json.dumps(line), flush=True)


def _idle_s() -> float:
    """Give the time in which this rank's cores had nothing to do.

    What the kernel does with packets is charged to whoever runs on the core, or to nobody: it is
    in no process's time.
    """
    cores = psutil.cpu_times(percpu=True)
    times = [cores[core] for core in os.sched_getaffinity(0)]
    return float(sum(one.idle + one.iowait + one.steal for one in times))


if __name__ == "__main__":
    main()
