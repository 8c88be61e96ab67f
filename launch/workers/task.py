"""Task of one worker, as one JSON document."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from launch.data.split import NodeSplit
from launch.job import CheckpointConfig
from launch.plan import Plan
from launch.workload import Workload


class Purpose(StrEnum):
    """Purpose for which a worker is started."""

    DESCRIBE = "describe"
    """Load the use case, prepare its data, report its facts for a planner."""

    EXPORT = "export"
    """Read the weights of a training and write the model as an ONNX file."""

    CHECK_PRECISION = "check_precision"
    """Make a few steps in fp32 and in other precisions, report which of these do not work here."""

    TIME = "time"
    """Train as many steps as the owner permits and report each; the owner ends it."""

    TRAIN = "train"
    """Train for a number of epochs, validate after each, save the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One worker's part of a job."""

    purpose: Purpose
    workload: Workload
    plan: Plan | None = None
    """``None`` where nothing is trained."""

    local_rank: int = 0
    cores: tuple[int, ...] = ()
    """Logical CPUs to stay on; empty: anywhere."""

    epochs: int = 1

    case_digests: tuple[str, ...] = ()
    """See `launch.job.Job`; of a use case that is described before it is trained, or once more."""

    node: int = 0
    """Number of this node in the job."""

    node_batches: tuple[int, ...] = ()
    """Samples per step on each node; empty where there is but this one, with its plan's."""

    has_rank: bool = False
    """Whether a rank handles requests between steps, as in every launched job and in no trial."""

    by_turns: bool = False
    """Whether each step of a training takes a permit of the owner, as in a trial."""

    weights: str | None = None
    """File in which worker 0 saves the weights; from which they are exported."""

    onnx: str | None = None
    """ONNX file to export to, or, before a training, to check; ``None`` where nobody wants it."""

    best_weights: str | None = None
    """File in which worker 0 of the first node saves those of the best validation; the same for all
    workers. ``None`` where nobody wants it."""

    allow_nan: bool = False
    """Whether to train on where a loss is NaN or infinite."""

    noise_cost_limit: float | None = None
    """Share of the steps' time for measuring the gradient noise scale, where that can be done;
    ``None``: it is not measured."""

    noise_obstacle: str | None = None
    """What speaks against it, whatever this node trains."""

    hosts: tuple[str, ...] = ()
    """Names of all nodes, stored in checkpoints."""

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    checkpoint_copy: str | None = None
    """Path of this node's copy of it, while it is read."""

    precisions: tuple[str, ...] = ()
    """Precisions to check, in this order; the plan gives the device, the threads and the most
    samples."""

    @property
    def group_size(self) -> int:
        """Workers on this node."""
        is_alone = self.purpose in (Purpose.DESCRIBE, Purpose.EXPORT)
        return 1 if is_alone or self.plan is None else self.plan.processes

    @property
    def split(self) -> NodeSplit:
        """Slice of each global batch that is this node's."""
        assert self.plan is not None
        return NodeSplit(self.node_batches or (self.plan.node_batch,), self.node)


def make_worker_tasks(task: Task, core_ids: tuple[int, ...]) -> list[Task]:
    """Make the task of each worker of a plan, with its number and its own cores.

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
