"""What is one worker told to do? Everything it needs, as one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from launch.data.split import NodeSplit
from launch.plan import Plan


class Purpose(StrEnum):
    """Why a worker is started."""

    DESCRIBE = "describe"
    """Load the use case, make its data ready, say what a planner must know of it."""

    CHECK_PRECISION = "check_precision"
    """Make a few steps in fp32 and in other precisions, say which of these are no good here."""

    TIME = "time"
    """Train for ever and report each step; whoever listens ends it."""

    TRAIN = "train"
    """Train for a number of epochs, validate after each, save the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One worker's part of a job."""

    purpose: Purpose
    use_case: str
    """As the user names it; see `launch.use_cases.load_use_case`."""

    data: str | None = None
    plan: Plan | None = None
    """``None`` where nothing is trained."""

    local_rank: int = 0
    cores: tuple[int, ...] = ()
    """Logical CPUs to stay on; empty: anywhere."""

    seed: int = 0
    epochs: int = 1

    node: int = 0
    """Number of this node in the job."""

    node_batches: tuple[int, ...] = ()
    """Samples per step on each node; empty where there is but this one, with its plan's."""

    is_led: bool = False
    """Whether a rank answers between steps, as in every launched job and in no trial."""

    weights: str | None = None
    """Where worker 0 saves the weights."""

    hosts: tuple[str, ...] = ()
    """Names of all nodes, for whoever goes on."""

    checkpoint: str | None = None
    """Folder of the checkpoints, on the first node; ``None`` where none are wanted."""

    resume: str | None = None
    """The checkpoint to go on from; ``None`` to begin."""

    copy: str | None = None
    """Where a node may put a copy of it, while it is read."""

    precisions: tuple[str, ...] = ()
    """What to check, in this order; the plan says on which device, with how many threads and
    samples at most."""

    @property
    def group_size(self) -> int:
        """Workers on this node."""
        trains = self.purpose is not Purpose.DESCRIBE and self.plan is not None
        return self.plan.processes if trains and self.plan else 1

    @property
    def split(self) -> NodeSplit:
        """Which slice of each global batch is this node's."""
        assert self.plan is not None
        return NodeSplit(self.node_batches or (self.plan.node_batch,), self.node)

    def encode(self) -> bytes:
        """Give the task as JSON."""
        values = asdict(self) | {"plan": self.plan.to_json() if self.plan else None}
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, document: bytes) -> Task:
        """Read a task that `encode` wrote."""
        values = json.loads(document)
        values["purpose"] = Purpose(values["purpose"])
        values["plan"] = Plan.from_json(values["plan"]) if values["plan"] else None
        values["cores"] = tuple(values["cores"])
        values["precisions"] = tuple(values["precisions"])
        values["node_batches"] = tuple(values["node_batches"])
        values["hosts"] = tuple(values["hosts"])
        return cls(**values)


def worker_tasks(task: Task, core_ids: tuple[int, ...]) -> list[Task]:
    """Give each worker of a plan its number and its own cores.

    Args:
        task: What all workers have in common; its plan fits the node.
        core_ids: Logical CPUs for all threads of the plan, those of a worker side by side;
            empty where nothing is to be pinned.
    """
    assert task.plan is not None
    threads = task.plan.threads_per_process
    return [
        replace(task, local_rank=rank, cores=core_ids[rank * threads : (rank + 1) * threads])
        for rank in range(task.plan.processes)
    ]
