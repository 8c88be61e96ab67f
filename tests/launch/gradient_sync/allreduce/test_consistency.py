"""Ranks find out what differs between their hosts; `test_node` has them do so in whole jobs."""

from __future__ import annotations

import json

from ranks_here import said_by

COMPARED = """
import json, sys
from mpi4py import MPI
from launch.errors import LaunchError
from launch.gradient_sync.allreduce.consistency import compare_data, compare_models
from launch.gradient_sync.node_channel.gradient_layout import TensorLayout

comm, hosts = MPI.COMM_WORLD, ["first", "second"]
SQUARE, ROW = TensorLayout("float32", (2, 2), (2, 1)), TensorLayout("float32", (4,), (1,))
TURNED, PRECISE = TensorLayout("float32", (2, 2), (1, 2)), TensorLayout("float64", (4,), (1,))

def outcome(compare, *values):
    try:
        return compare(comm, values[comm.rank], hosts)
    except LaunchError as error:
        return str(error)

found = [
    outcome(compare_data, {"training": 9, "validation": 3}, {"training": 9, "validation": 3}),
    outcome(compare_data, {"training": 9, "validation": 3}, {"training": 9, "validation": 4}),
    outcome(compare_models, [SQUARE, SQUARE, ROW], [SQUARE, TURNED, ROW]),
    outcome(compare_models, [SQUARE], [SQUARE, ROW]),
    outcome(compare_models, [SQUARE, ROW], [SQUARE, SQUARE]),
    outcome(compare_models, [SQUARE, ROW], [SQUARE, PRECISE]),
]
sys.stdout.write(json.dumps(found) + "\\n")
"""
SAME = "give every host the same use case and the same versions"


def test_each_rank_names_the_first_difference_in_a_line():
    first, second = map(json.loads, said_by(2, COMPARED))
    assert first == second
    assert first == [
        None,
        "first has 3 validation samples, second 4: give every host the same data",
        [True, False, True],
        f"first trains 1 parameters, second 2: {SAME}",
        f"parameter 1 has shape [4] on first and [2, 2] on second: {SAME}",
        f"parameter 1 has dtype float32 on first and float64 on second: {SAME}",
    ]
