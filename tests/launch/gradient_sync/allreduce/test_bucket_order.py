"""Ranks start buckets in the same order, the latest first."""

from __future__ import annotations

import json

import pytest
from ranks_here import said_by

ORDER = """
import json, sys, time
from mpi4py import MPI
from launch.gradient_sync.allreduce.bucket_order import agree_on_order

BLOCKS, STEPS = 12, 5
comm = MPI.COMM_WORLD
order = agree_on_order(comm, BLOCKS)
steps = []
for step in range(STEPS):
    order.begin()
    started, ready, looks = [], 0, 0
    while len(started) < BLOCKS:
        ready = {ready}
        looks += 1
        if (block := order.next(ready, has_capacity=looks % 3 == 0)) is not None:
            assert block < ready
            started.append(block)
        time.sleep(0.0005)
    steps.append(started)
sys.stdout.write(json.dumps(steps) + "\\n")
comm.Barrier()
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_are_ready_at_other_times_start_every_block_in_the_same_order(ranks):
    ready = "min(BLOCKS, ready + ((looks + comm.rank) % (2 + comm.rank + step % 2) == 0))"
    said = list(map(json.loads, said_by(ranks, ORDER.replace("{ready}", ready))))
    assert said[1:] == said[:1] * (ranks - 1)
    for started in said[0]:
        assert sorted(started) == list(range(12))


def test_of_what_is_ready_everywhere_the_latest_starts_first():
    ready = "BLOCKS if looks > 20 or comm.rank else min(looks, 2)"
    said = list(map(json.loads, said_by(2, ORDER.replace("{ready}", ready))))
    for started in said[0]:
        late = [block for block in started if block >= 2]
        assert sorted(late, reverse=True) == late
        assert started.index(11) < started.index(2)
