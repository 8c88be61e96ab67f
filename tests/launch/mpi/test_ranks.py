"""What ranks send each other, and what that costs the workers beside them."""

from __future__ import annotations

import json

import pytest
from ranks_here import said_by

EXCHANGE = """
import json, sys
from mpi4py import MPI
from launch.mpi.ranks import Ranks

ranks = Ranks(MPI.COMM_WORLD)
own = bytes([ranks.rank]) * (ranks.rank * 100_000)
said = {
    "rank": ranks.rank,
    "size": ranks.size,
    "job": ranks.broadcast(b"of rank 0" if ranks.rank == 0 else b"left aside").decode(),
    "none": ranks.broadcast().decode(),
    "shared": [[len(one), one[:1].hex()] for one in ranks.all_gather(own)],
}
ranks.barrier()
sys.stdout.write(json.dumps(said) + "\\n")
"""

WAIT = """
import sys, time
from mpi4py import MPI
from launch.mpi.ranks import Ranks

ranks = Ranks(MPI.COMM_WORLD)
ranks.barrier()
used_s = time.process_time()
if ranks.rank == 0:
    time.sleep(1.0)
ranks.broadcast(b"late")
sys.stdout.write(f"{time.process_time() - used_s}\\n")
"""


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_every_rank_gets_every_document_whole(num_ranks):
    said = sorted(map(json.loads, said_by(num_ranks, EXCHANGE)), key=lambda one: one["rank"])
    sizes = [rank * 100_000 for rank in range(num_ranks)]
    first = ["", "01", "02"]
    for rank, one in enumerate(said):
        assert one == {
            "rank": rank,
            "size": num_ranks,
            "job": "of rank 0",
            "none": "",
            "shared": [[size, first[i]] for i, size in enumerate(sizes)],
        }


def test_rank_that_waits_leaves_its_core_to_the_workers():
    """The story: MPI's own broadcast asks again and again, and takes a core while it does."""
    assert max(map(float, said_by(2, WAIT))) < 0.5
