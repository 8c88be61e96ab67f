"""All-reduces between real ranks on this machine: alone, and beside cores that compute."""

from __future__ import annotations

import json

import pytest
from ranks_here import run_ranks

MEASURE = """
import json, sys, time
from dataclasses import asdict
from mpi4py import MPI
import psutil
from probes import busy_cores
from probes.errors import LinkProbeError
from probes.network.all_reduce import measure_all_reduce

comm = MPI.COMM_WORLD
sums, computing = [], []

def measure(sum_in_place, comm=comm):
    return measure_all_reduce(comm, 4000, sum_in_place=sum_in_place, repeats=3, time_limit_s=600)

def sum_in_place(numbers):
    mine = numbers.copy()
    mine[:] = comm.rank + 1
    comm.Allreduce(mine, numbers)
    sums.append(float(numbers[0]))
    computing.append(len(psutil.Process().children()))

def compute(numbers):
    # As one does that adds up the parts of all others.
    until_s = time.process_time() + 0.05 * comm.rank
    while time.process_time() < until_s:
        pass
    comm.Barrier()

found = {"all_reduce": asdict(measure(sum_in_place)), "sums": sums, "computing": computing,
         "left": [c.pid for c in psutil.Process().children()], "costs": asdict(measure(compute))}
if comm.rank == 1:
    busy_cores.module_command = lambda *_: [sys.executable, "-c", "raise SystemExit(1)"]
found["alone"] = asdict(measure(lambda numbers: comm.Barrier()))
try:
    measure(print, MPI.COMM_SELF)
except LinkProbeError as error:
    found["refused"] = str(error)
every = comm.gather(found)
if comm.rank == 0:
    print(json.dumps(every))
"""


@pytest.fixture(scope="module")
def measured():
    """What two ranks found."""
    ended = run_ranks(2, ["-c", MEASURE], options=["--mca", "mpi_yield_when_idle", "1"])
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_all_reduce_is_timed_by_its_slowest_rank(measured):
    one, other = (rank["all_reduce"] for rank in measured)
    assert one == other
    assert (one["message_bytes"], one["ranks"]) == (4000, 2)
    assert len(one["times"]["warmup_s"]) == 1
    assert len(one["times"]["samples_s"]) == 3


def test_all_reduce_that_is_given_is_the_one_that_is_timed(measured):
    assert measured[0]["sums"] == [3.0] * 8  # alone and beside computing, one of each warms up


def test_half_of_the_runs_are_beside_a_process_that_computes(measured):
    for rank in measured:
        assert rank["computing"] == [0] * 4 + [1] * 4
        assert rank["left"] == []
        assert rank["all_reduce"]["beside_s"] > 0


def test_what_a_sum_costs_is_told_of_each_rank(measured):
    costs = measured[1]["costs"]
    assert costs["cpu_s"][0] > 0
    assert costs["cpu_s"][1] >= 0.05
    assert len(costs["interrupts_s"]) == 2


def test_where_a_rank_cannot_compute_sums_are_measured_alone(measured):
    for rank in measured:
        assert rank["alone"]["beside_s"] is None
        assert len(rank["alone"]["cpu_s"]) == 2


def test_one_rank_has_nobody_to_sum_with(measured):
    assert measured[0]["refused"] == "ranks=1: measure an all-reduce between at least 2"
