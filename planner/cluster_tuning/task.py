"""Task of all nodes of cluster tuning, as one JSON document."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from planner.tuning.study import EarlierTrials
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware


class ClusterPurpose(StrEnum):
    """Why the job is started."""

    PROBE = "probe"
    """Find out what each node is and what the network can do."""

    LINKS = "links"
    """Measure the network alone."""

    TUNE = "tune"
    """Search for each node's best plan, then measure the network with the model's gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """What is known of one node before it starts."""

    leader: int
    """Rank of the node that searches for this one, with equal hardware; itself where it does."""

    probe: Hardware | None = None
    """Its last stored probe, which may be of other hardware than it has now."""

    studies: Mapping[str, EarlierTrials] = field(default_factory=dict)
    """Studies of this use case on the node, by their keys: which one goes on turns out there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTask:
    """One MPI job: rank ``i`` runs the part of ``nodes[i]``."""

    purpose: ClusterPurpose
    nodes: tuple[NodeTask, ...] = ()
    """Given when the job starts, as are its software and its name."""

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions that the measurements depend on, which every node has."""

    request: TuneRequest | None = None
    """What the user asks of the search."""

    is_quick: bool = False
    """Whether nothing is to be measured, and no link either."""

    data: str | None = None
    """Folder of data whose reading a probe measures too, by all nodes at the same time."""

    message_bytes: tuple[int, ...] = ()
    """Sizes of the all-reduces to time, beside that of the model's gradients."""

    waits: bool = True
    """Whether a node waits while something else is timed on its machine; else it gives up."""

    job: str = ""
    """Name of this job that no other has: its ranks on one machine do not wait for one another."""


def choose_leaders(hardware: Sequence[Hashable], known: Sequence[int]) -> tuple[int, ...]:
    """Choose who searches for whom: of nodes with equal hardware one does, for all of them.

    Args:
        hardware: What is equal on nodes with equal hardware; ``None``, unknown, is like no other.
        known: Trials of each node that a search would go on from. Who has most leads.

    Returns:
        For each node the rank of the one that searches for it.
    """

    def leader_of(rank: int) -> int:
        equal = [i for i, found in enumerate(hardware) if found == hardware[rank]]
        return max(equal, key=lambda i: (known[i], -i))

    return tuple(rank if one is None else leader_of(rank) for rank, one in enumerate(hardware))
