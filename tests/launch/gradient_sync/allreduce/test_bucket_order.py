"""Ranks start buckets in the same order, the latest first."""

from __future__ import annotations

import json

import pytest
from ranks_here import said_by

ORDERS = """
import json, sys, time
from mpi4py import MPI
from launch.gradient_sync.allreduce.bucket_order import agree_on_order

BLOCKS, STEPS = 12, 5
comm = MPI.COMM_WORLD

def make_steps(find_ready):
    order, steps = agree_on_order(comm, BLOCKS), []
    for step in range(STEPS):
        order.begin()
        started, ready, looks = [], 0, 0
        while len(started) < BLOCKS:
            ready = find_ready(ready, looks, step)
            looks += 1
            if (block := order.next(ready, has_capacity=looks % 3 == 0)) is not None:
                assert block < ready
                started.append(block)
            time.sleep(0.0005)
        steps.append(started)
    return steps

def uneven(ready, looks, step):
    return min(BLOCKS, ready + ((looks + comm.rank) % (2 + comm.rank + step % 2) == 0))

def at_once(ready, looks, step):
    return BLOCKS if looks > 20 or comm.rank else min(looks, 2)

found = {"uneven": make_steps(uneven), "at once": make_steps(at_once)}
sys.stdout.write(json.dumps(found) + "\\n")
comm.Barrier()
"""


@pytest.fixture(scope="module")
def orders() -> list[dict[str, list[list[int]]]]:
    """Orders of each of three ranks, by how its buckets get ready."""
    return list(map(json.loads, said_by(3, ORDERS)))


def test_ranks_that_are_ready_at_other_times_start_every_block_in_the_same_order(orders):
    first, *others = (rank["uneven"] for rank in orders)
    assert others == [first, first]
    for started in first:
        assert sorted(started) == list(range(12))


def test_of_what_is_ready_everywhere_the_latest_starts_first(orders):
    for started in orders[0]["at once"]:
        late = [block for block in started if block >= 2]
        assert sorted(late, reverse=True) == late
        assert started.index(11) < started.index(2)
