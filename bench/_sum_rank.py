"""A rank that adds up memory of a model's size, and nothing else: what the network alone takes.

Rank 0 prints one line of JSON: seconds of each sum, processor seconds of each rank, bytes sent.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

from launch.exchange.gradients import BLOCK_BYTES
from launch.exchange.ring import RingSum


def main() -> None:
    """Add up so many bytes, so many times."""
    num_bytes, repeats = map(int, sys.argv[1:])
    comm = MPI.COMM_WORLD
    memory = np.ones(num_bytes // 4, np.float32)
    step = BLOCK_BYTES // 4
    blocks = [memory[low : low + step] for low in range(0, len(memory), step)]
    adder = RingSum(comm)
    times_s, processor_s = [], []
    for _ in range(repeats + 1):
        memory[:] = 1
        comm.Barrier()
        began, used = time.perf_counter(), time.process_time()
        adder.add_up(blocks)
        processor_s.append(time.process_time() - used)
        times_s.append(time.perf_counter() - began)
        assert memory[0] == memory[-1] == comm.size
    everybody = np.empty((comm.size, repeats), np.float64)
    comm.Gather(np.array(processor_s[1:]), everybody if comm.rank == 0 else None)
    if comm.rank == 0:
        sent = adder.sent_bytes // (repeats + 1)
        line = {"times_s": times_s[1:], "processor_s": everybody.max(0).tolist(), "bytes": sent}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
