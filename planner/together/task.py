"""What are the nodes told to do together? Everything they need, as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from planner.result import TrialResult
from planner.study import EarlierTrials
from planner.tune_request import TuneRequest
from probes.hardware import Hardware


class Purpose(StrEnum):
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

    host: str
    """As the host file names it."""

    leader: int
    """Rank of the node that searches for this one, with equal hardware; itself where it does."""

    probe: Hardware | None = None
    """Its last stored probe, which may be of other hardware than it has now."""

    studies: Mapping[str, EarlierTrials] = field(default_factory=dict)
    """Studies of this use case on the node, by their keys: which one goes on turns out there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherTask:
    """One MPI job: rank ``i`` runs the part of ``nodes[i]``."""

    purpose: Purpose
    nodes: tuple[NodeTask, ...]

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions that the measurements depend on, which every node has."""

    request: TuneRequest | None = None
    """What the user asks of the search."""

    is_quick: bool = False
    """Whether nothing is to be measured, and no link either."""

    message_bytes: tuple[int, ...] = ()
    """Sizes of the all-reduces to time, beside that of the model's gradients."""

    def encode(self) -> bytes:
        """Give the task as JSON."""
        request = None if self.request is None else asdict(self.request)
        nodes = [_node_json(node) for node in self.nodes]
        values = {
            "purpose": self.purpose.value,
            "nodes": nodes,
            "software": dict(self.software),
            "request": request,
            "is_quick": self.is_quick,
            "message_bytes": list(self.message_bytes),
        }
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, document: bytes) -> TogetherTask:
        """Read a task that `encode` wrote."""
        values: dict[str, Any] = json.loads(document)
        return cls(
            purpose=Purpose(values["purpose"]),
            nodes=tuple(_node(node) for node in values["nodes"]),
            software=values["software"],
            request=_request(values["request"]),
            is_quick=values["is_quick"],
            message_bytes=tuple(values["message_bytes"]),
        )


def _node_json(node: NodeTask) -> dict[str, Any]:
    studies = {
        key: {
            "results": [result.to_json() for result in earlier.results],
            "finished": earlier.finished,
        }
        for key, earlier in node.studies.items()
    }
    probe = None if node.probe is None else node.probe.to_json()
    return {"host": node.host, "leader": node.leader, "probe": probe, "studies": studies}


def _node(values: Mapping[str, Any]) -> NodeTask:
    probe = values["probe"]
    return NodeTask(
        host=values["host"],
        leader=values["leader"],
        probe=None if probe is None else Hardware.from_json(probe),
        studies={
            key: EarlierTrials(
                study_id=0,  # a matter of the database, which the node does not see
                results=tuple(TrialResult.from_json(result) for result in earlier["results"]),
                finished=earlier["finished"],
            )
            for key, earlier in values["studies"].items()
        },
    )


def _request(values: Mapping[str, Any] | None) -> TuneRequest | None:
    if values is None:
        return None
    return TuneRequest(**{**values, "strategies": tuple(values["strategies"])})


def choose_leaders(fingerprints: Sequence[str | None], known: Sequence[int]) -> tuple[int, ...]:
    """Choose who searches for whom: of nodes with equal hardware one does, for all of them.

    Args:
        fingerprints: Of each node's hardware; one that is not known is like no other.
        known: Trials of each node that a search would go on from. Who has most leads.

    Returns:
        For each node the rank of the one that searches for it.
    """

    def leader_of(rank: int) -> int:
        equal = [i for i, found in enumerate(fingerprints) if found == fingerprints[rank]]
        return max(equal, key=lambda i: (known[i], -i))

    return tuple(
        rank if fingerprint is None else leader_of(rank)
        for rank, fingerprint in enumerate(fingerprints)
    )
