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


def compare_models(
    comm: MPI.Comm, parameters: Sequence[Parameter], hosts: Sequence[str]
) -> list[bool]:
    """Tell of each parameter whether all nodes have its elements in the same order of memory.

    Collective.

    Args:
        comm: Of all nodes.
        parameters: Of this node's model.
        hosts: Names of the nodes, by rank.

    Raises:
        LaunchError: The nodes have other parameters.
    """
    mine = json.dumps([asdict(parameter.form) for parameter in parameters]).encode()
    first, *others = map(json.loads, Ranks(comm).all_gather(mine))
    for host, other in zip(hosts[1:], others, strict=True):
        _check_same(hosts[0], first, host, other)
    return [
        all(other[index]["strides"] == form["strides"] for other in others)
        for index, form in enumerate(first)
    ]


def _check_same(first_host: str, first: Forms, host: str, other: Forms) -> None:
    remedy = "give every host the same use case and the same versions"
    if len(first) != len(other):
        raise LaunchError(
            f"{first_host} trains {len(first)} parameters, {host} {len(other)}: {remedy}"
        )
    for index, (one, two) in enumerate(zip(first, other, strict=True)):
        for key in ("shape", "dtype"):
            if one[key] != two[key]:
                raise LaunchError(
                    f"parameter {index} has {key} {one[key]} on {first_host} and {two[key]} on "
                    f"{host}: {remedy}"
                )
