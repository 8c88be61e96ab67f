"""The network between real ranks on this machine: who is measured with whom, what comes out."""

from __future__ import annotations

import json
from itertools import combinations
from subprocess import CompletedProcess

import pytest
from ranks_here import run_ranks

from probes.links import pair_rounds

MEASURE = """
import json, sys
from dataclasses import asdict
from mpi4py import MPI
from probes.links import measure_all_reduce, measure_links

comm = MPI.COMM_WORLD
links = measure_links(comm, time_limit_s=float(sys.argv[1]))
sums = []

def sum_in_place(numbers):
    mine = numbers.copy()
    mine[:] = comm.rank + 1
    comm.Allreduce(mine, numbers)
    sums.append(float(numbers[0]))

ours = measure_all_reduce(comm, 4000, sum_in_place=sum_in_place, repeats=3)
theirs = measure_all_reduce(comm, 4000, repeats=3)
found = {"links": [asdict(link) for link in links], "sums": sums,
         "all_reduce": [asdict(one) for one in (ours, theirs)]}
every = comm.gather(json.dumps(found))
if comm.rank == 0:
    print(json.dumps([json.loads(one) for one in every]))
"""


def run_program(count: int, program: str, *arguments: object) -> CompletedProcess[str]:
    words = ["-c", program, *map(str, arguments)]
    return run_ranks(count, words, options=["--mca", "mpi_yield_when_idle", "1"])


@pytest.fixture(scope="module", params=[20, 0.4])
def measured(request):
    """What three ranks found, with time for one pair after another, and without."""
    ended = run_program(3, MEASURE, request.param)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_every_rank_knows_every_link(measured):
    assert measured[0]["links"] == measured[1]["links"] == measured[2]["links"]
    pairs = [(link["first"], link["second"]) for link in measured[0]["links"]]
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    for link in measured[0]["links"]:
        assert link["latency_s"] > 0
        assert link["bytes_per_s"] > 0


def test_all_reduce_is_timed_by_its_slowest_rank(measured):
    assert measured[0]["all_reduce"] == measured[1]["all_reduce"] == measured[2]["all_reduce"]
    for one in measured[0]["all_reduce"]:
        assert (one["message_bytes"], one["ranks"]) == (4000, 3)
        assert len(one["times"]["warmup_s"]) == 1
        assert len(one["times"]["samples_s"]) == 3


def test_all_reduce_that_is_given_is_the_one_that_is_timed(measured):
    assert measured[0]["sums"] == [6.0] * 4


def test_nothing_is_measured_with_one_rank():
    program = """
from mpi4py import MPI
from probes.errors import LinkProbeError
from probes.links import measure_all_reduce, measure_links

assert measure_links(MPI.COMM_WORLD) == ()
try:
    measure_all_reduce(MPI.COMM_WORLD, 4)
except LinkProbeError as error:
    print(error)
"""
    ended = run_program(1, program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "ranks=1: measure an all-reduce between at least 2\n"


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
