"""What ranks send each other, and what that costs the workers beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ranks_here import said_by

PROGRAM = """
import json, sys, time
from mpi4py import MPI
from launch.mpi.ranks import Ranks

def exchange(ranks):
    own = bytes([ranks.rank]) * (ranks.rank * 100_000)
    said = {
        "rank": ranks.rank,
        "size": ranks.size,
        "job": ranks.broadcast(b"of rank 0" if ranks.rank == 0 else b"left aside").decode(),
        "none": ranks.broadcast().decode(),
        "shared": [[len(one), one[:1].hex()] for one in ranks.all_gather(own)],
    }
    ranks.barrier()
    return said

def wait(ranks):
    used_s = time.process_time()
    if ranks.rank == 0:
        time.sleep(1.0)
    ranks.broadcast(b"late")
    return time.process_time() - used_s

every = Ranks(MPI.COMM_WORLD)
found = {"of 3": exchange(every), "of 1": exchange(Ranks(MPI.COMM_SELF)), "used_s": wait(every)}
sys.stdout.write(json.dumps(found) + "\\n")
"""


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    """What each of three ranks found, by its rank."""
    found = map(json.loads, said_by(3, PROGRAM))
    return sorted(found, key=lambda one: one["of 3"]["rank"])


def test_every_rank_gets_every_document_whole(said):
    same = {"job": "of rank 0", "none": ""}
    for rank, one in enumerate(said):
        shared = [[0, ""], [100_000, "01"], [200_000, "02"]]
        assert one["of 3"] == {"rank": rank, "size": 3, "shared": shared, **same}
        assert one["of 1"] == {"rank": 0, "size": 1, "shared": [[0, ""]], **same}


def test_rank_that_waits_leaves_its_core_to_the_workers(said):
    """The story: MPI's own broadcast asks again and again, and takes a core while it does."""
    assert max(one["used_s"] for one in said) < 0.5
