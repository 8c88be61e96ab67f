"""Do all nodes share out the same epoch? Their samples are counted before the first step.

Each node takes its part of an epoch by the numbers of the samples. With other counts they would
read other parts, and one would wait for a step that another does not make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mpi4py import MPI

from launch.errors import LaunchError
from launch.mpi.ranks import Ranks


def compare_data(comm: MPI.Comm, counts: Mapping[str, int], hosts: Sequence[str]) -> None:
    """Make sure that all nodes have equally many samples.

    Collective.

    Args:
        comm: Of all nodes.
        counts: Of this node, by what the samples are for.
        hosts: Names of the nodes, by rank.

    Raises:
        LaunchError: They have not.
    """
    mine = json.dumps(dict(counts)).encode()
    first, *others = map(json.loads, Ranks(comm).all_gather(mine))
    for host, other in zip(hosts[1:], others, strict=True):
        for kind, count in first.items():
            if other[kind] != count:
                raise LaunchError(
                    f"{hosts[0]} has {count} {kind} samples, {host} {other[kind]}: give every host "
                    "the same data"
                )
