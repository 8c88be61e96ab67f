"""Do all nodes train the same model? Their parameters are compared before the first step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mpi4py import MPI

from launch.errors import LaunchError
from launch.exchange.gradients import Parameter
from launch.mpi.ranks import Ranks

Forms = Sequence[Mapping[str, Any]]


def compare_models(comm: MPI.Comm, parameters: Sequence[Parameter]) -> list[bool]:
    """Tell of each parameter whether all nodes have its elements in the same order of memory.

    Collective.

    Raises:
        LaunchError: The nodes have other parameters.
    """
    mine = json.dumps([asdict(parameter.form) for parameter in parameters]).encode()
    first, *others = map(json.loads, Ranks(comm).all_gather(mine))
    for rank, other in enumerate(others, start=1):
        _check_same(first, other, rank)
    return [
        all(other[index]["strides"] == form["strides"] for other in others)
        for index, form in enumerate(first)
    ]


def _check_same(first: Forms, other: Forms, rank: int) -> None:
    remedy = "give every node the same use case and the same versions"
    if len(first) != len(other):
        raise LaunchError(
            f"node 0 trains {len(first)} parameters, node {rank} {len(other)}: {remedy}"
        )
    for index, (one, two) in enumerate(zip(first, other, strict=True)):
        for key in ("shape", "dtype"):
            if one[key] != two[key]:
                raise LaunchError(
                    f"parameter {index} has {key} {one[key]} on node 0 and {two[key]} on node "
                    f"{rank}: {remedy}"
                )
