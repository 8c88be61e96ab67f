"""What is launched? One use case on a list of nodes, each with a plan of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launch.plan import Plan
from launch.shares import StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """What one node does."""

    host: str
    plan: Plan
    """Its node batch is the node's share of the global batch."""

    step_time: StepTime | None = None
    """What its steps take, by the plan's evidence; ``None`` where that is not known."""

    max_batch: int | None = None
    """Largest node batch that its memory is known to hold."""

    machine: str | None = None
    """What the host calls itself; ``None`` where nobody has asked it."""

    def to_json(self) -> dict[str, Any]:
        """Give the values as JSON can hold them."""
        time = None if self.step_time is None else self.step_time.to_json()
        plan = self.plan.to_json()
        return {
            "host": self.host,
            "plan": plan,
            "step_time": time,
            "max_batch": self.max_batch,
            "machine": self.machine,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> NodeJob:
        """Read what `to_json` gave."""
        time = values["step_time"]
        return cls(
            host=values["host"],
            plan=Plan.from_json(values["plan"]),
            step_time=None if time is None else StepTime.from_json(time),
            max_batch=values["max_batch"],
            machine=values["machine"],
        )


DEFAULT_EVERY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How a job is kept, so that another one can go on."""

    folder: str | None = None
    """Of the checkpoints, on the first host; ``None`` where none are written."""

    every_s: float = DEFAULT_EVERY_S
    """Time between two of them."""

    resume: str | None = None
    """The checkpoint to go on from, on the first host; ``None`` to begin."""

    done_epochs: int = 0
    """Epochs that it has done."""


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

    networks: tuple[str, ...] = ()
    """Where the nodes reach one another, in CIDR form; empty for any way."""

    hang_limit_s: float | None = None
    """A node that makes no step for so long has failed; ``None``: 20 times the time of its steps,
    at least a minute."""

    is_rounded: bool = False
    """Whether gradients are rounded to 16 bits on their way between nodes."""

    keeps_shares: bool = False
    """Whether the nodes keep their shares even where one becomes slower."""

    keeping: Keeping = Keeping()

    @property
    def node_batches(self) -> tuple[int, ...]:
        """Samples per step on each node."""
        return tuple(node.plan.node_batch for node in self.nodes)

    def encode(self) -> bytes:
        """Give the job as JSON."""
        nodes = [node.to_json() for node in self.nodes]
        return json.dumps(asdict(self) | {"nodes": nodes}, indent=1).encode()

    @classmethod
    def decode(cls, document: bytes) -> Job:
        """Read a job that `encode` wrote."""
        values: Mapping[str, Any] = json.loads(document)
        nodes = tuple(map(NodeJob.from_json, values["nodes"]))
        networks = tuple(values["networks"])
        keeping = Keeping(**values["keeping"])
        return cls(**{**values, "nodes": nodes, "networks": networks, "keeping": keeping})
