"""The network between real ranks on this machine: who is measured with whom, what comes out."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from ranks_here import run_ranks

from probes.network.links import pair_rounds

MEASURE = """
import json
from dataclasses import asdict
from mpi4py import MPI
from probes.network.links import measure_links

def measure(comm, limit_s):
    return [asdict(link) for link in measure_links(comm, time_limit_s=limit_s)]

comm = MPI.COMM_WORLD
found = {"in 20 s": measure(comm, 20), "in 0.4 s": measure(comm, 0.4)}
every = comm.gather(found | {"alone": measure(MPI.COMM_SELF, 20)})
if comm.rank == 0:
    print(json.dumps(every))
"""


@pytest.fixture(scope="module")
def measured():
    """What three ranks found, with time for one pair after another, and without."""
    ended = run_ranks(3, ["-c", MEASURE], options=["--mca", "mpi_yield_when_idle", "1"])
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("limit", ["in 20 s", "in 0.4 s"])
def test_every_rank_knows_every_link(measured, limit):
    first, *others = (rank[limit] for rank in measured)
    assert others == [first, first]
    assert [(link["first"], link["second"]) for link in first] == [(0, 1), (0, 2), (1, 2)]
    for link in first:
        assert link["latency_s"] > 0
        assert link["bytes_per_s"] > 0


def test_one_rank_has_no_links(measured):
    assert [rank["alone"] for rank in measured] == [[], [], []]


@pytest.mark.parametrize("size", range(9))
@pytest.mark.parametrize("at_once", [True, False])
def test_every_pair_has_its_turn_once(size, at_once):
    rounds = list(pair_rounds(size, at_once=at_once))
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(size), 2))


@pytest.mark.parametrize("size", range(1, 9))
def test_pairs_of_a_round_are_disjoint_and_nobody_sits_out_needlessly(size):
    rounds = list(pair_rounds(size, at_once=True))
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks)) == size // 2 * 2
