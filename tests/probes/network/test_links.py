"""The network between real ranks on this machine: who is measured with whom, what comes out."""

from __future__ import annotations

import json
from itertools import combinations
from subprocess import CompletedProcess

import pytest
from ranks_here import run_ranks

from probes.network.links import pair_rounds

MEASURE = """
import json, sys
from dataclasses import asdict
from mpi4py import MPI
from probes.network.links import measure_links

links = measure_links(MPI.COMM_WORLD, time_limit_s=float(sys.argv[1]))
every = MPI.COMM_WORLD.gather([asdict(link) for link in links])
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps(every))
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
    assert measured[0] == measured[1] == measured[2]
    pairs = [(link["first"], link["second"]) for link in measured[0]]
    assert pairs == [(0, 1), (0, 2), (1, 2)]
    for link in measured[0]:
        assert link["latency_s"] > 0
        assert link["bytes_per_s"] > 0


def test_one_rank_has_no_links():
    program = """
from mpi4py import MPI
from probes.network.links import measure_links

print(measure_links(MPI.COMM_WORLD))
"""
    ended = run_program(1, program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "()\n"


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
