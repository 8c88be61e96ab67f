"""Check before the first step that all nodes have the same data and the same model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from mpi4py import MPI

from launch.errors import LaunchError
from launch.gradient_sync.node_channel.gradient_layout import TensorLayout
from launch.mpi.ranks import Ranks
from probes import codec

T = TypeVar("T")

_REMEDY = "give every host the same use case and the same versions"


def compare_data(comm: MPI.Comm, counts: Mapping[str, int], hosts: Sequence[str]) -> None:
    """Check that all nodes have equally many samples. Collective.

    Each node takes its part of an epoch by the numbers of the samples. With other counts a node
    would read other parts, and wait for a step that another does not make.

    Args:
        comm: Of all nodes.
        counts: Of this node, by what the samples are for.
        hosts: Names of the nodes, by rank.

    Raises:
        LaunchError: They have not.
    """
    first, others = _gather(comm, counts, dict[str, int], hosts)
    for host, other in others:
        for kind, count in first.items():
            if other[kind] != count:
                raise LaunchError(
                    f"{hosts[0]} has {count} {kind} samples, {host} {other[kind]}: give every host "
                    "the same data"
                )


def compare_models(
    comm: MPI.Comm, layouts: Sequence[TensorLayout], hosts: Sequence[str]
) -> list[bool]:
    """Check that all nodes train the same parameters. Collective.

    Returns:
        For each parameter, whether all nodes have its elements in the same order of memory.

    Raises:
        LaunchError: The nodes have other parameters.
    """
    first, others = _gather(comm, layouts, list[TensorLayout], hosts)
    has_same_order = [True] * len(first)
    for host, other in others:
        if len(first) != len(other):
            raise LaunchError(
                f"{hosts[0]} trains {len(first)} parameters, {host} {len(other)}: {_REMEDY}"
            )
        for index, (one, two) in enumerate(zip(first, other, strict=True)):
            for key, here, there in (
                ("shape", list(one.shape), list(two.shape)),
                ("dtype", one.dtype, two.dtype),
            ):
                if here != there:
                    raise LaunchError(
                        f"parameter {index} has {key} {here} on {hosts[0]} and {there} on {host}: "
                        f"{_REMEDY}"
                    )
            has_same_order[index] &= one.strides == two.strides
    return has_same_order


def _gather(
    comm: MPI.Comm, mine: object, as_type: type[T], hosts: Sequence[str]
) -> tuple[T, Iterator[tuple[str, T]]]:
    """Give rank 0's values, and those of the others with their hosts."""
    documents = Ranks(comm).all_gather(codec.encode(mine))
    first, *others = (
        codec.decode(each, as_type, source="rank", allow_unknown_keys=False) for each in documents
    )
    return first, zip(hosts[1:], others, strict=True)
