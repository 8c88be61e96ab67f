"""What is launched? One use case on a list of nodes, each with a plan of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launch.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """What one node does."""

    host: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One MPI job: rank ``i`` runs ``nodes[i]``."""

    use_case: str
    nodes: tuple[NodeJob, ...]

    run_directory: str
    """Absolute, the same on every node."""

    data: str | None = None
    epochs: int = 1
    seed: int = 0

    def encode(self) -> bytes:
        """Give the job as JSON."""
        nodes = [{"host": node.host, "plan": node.plan.to_json()} for node in self.nodes]
        return json.dumps(asdict(self) | {"nodes": nodes}, indent=1).encode()

    @classmethod
    def decode(cls, document: bytes) -> Job:
        """Read a job that `encode` wrote."""
        values: Mapping[str, Any] = json.loads(document)
        nodes = tuple(
            NodeJob(host=node["host"], plan=Plan.from_json(node["plan"]))
            for node in values["nodes"]
        )
        return cls(**{**values, "nodes": nodes})
