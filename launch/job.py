"""Job: one use case on a list of nodes, each with its own plan."""

from __future__ import annotations

from dataclasses import dataclass

from launch.noise_scale.estimate import COST_LIMIT
from launch.plan import Plan
from launch.shares import StepTime
from launch.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """One node's part of a job."""

    host: str
    plan: Plan
    """Its node batch is the node's share of the global batch."""

    step_time: StepTime | None = None
    """Time of its steps, by the plan's evidence; ``None`` where that is not known."""

    max_batch: int | None = None
    """Largest node batch that is known to fit into its memory."""

    machine: str | None = None
    """Own name of the host; ``None`` where it is not known."""

    gpu_uuids: tuple[str, ...] = ()
    """GPUs of the plan, whose use is reported."""


_DEFAULT_CHECKPOINT_INTERVAL_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints of a job: their folder and interval, and the one that it resumes from."""

    folder: str | None = None
    """Of the checkpoints, on the first host; ``None`` where none are written."""

    every_s: float = _DEFAULT_CHECKPOINT_INTERVAL_S
    """Time between two of them."""

    resume_from: str | None = None
    """The checkpoint to resume from, on the first host; ``None`` to begin."""

    done_epochs: int = 0
    """Epochs that it has done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One MPI job: rank ``i`` runs ``nodes[i]``."""

    workload: Workload
    nodes: tuple[NodeJob, ...]

    run_directory: str
    """Absolute, the same on every node."""

    epochs: int = 1

    case_digests: tuple[str, ...] = ()
    """Of the use case when the plans were found; empty where they are not known. With another one
    it was changed since, so that its loss is checked before it is trained."""

    networks: tuple[str, ...] = ()
    """Where the nodes reach one another, in CIDR form; empty for any way."""

    hang_timeout_s: float | None = None
    """A node that makes no step for so long has failed; ``None``: 20 times the time of its steps,
    at least a minute."""

    wire: str = "fp32"
    """How gradients are written between nodes: a file of `launch.gradient_sync.wire_formats`."""

    all_reduce: str = "ring"
    """How they are summed there: a file of `launch.gradient_sync.algorithms`."""

    allow_nan: bool = False
    """Whether to train on where a loss is NaN or infinite."""

    keep_best: bool = False
    """Whether the weights of the best validation are kept."""

    onnx: str | None = None
    """File on the first host to which the model is exported at the end."""
    noise_cost_limit: float | None = COST_LIMIT
    """Share of the steps' time for measuring the gradient noise scale, where that can be done;
    ``None``: it is not measured."""

    keep_shares: bool = False
    """Whether the nodes keep their shares even where one becomes slower."""

    checkpoint: CheckpointConfig = CheckpointConfig()

    @property
    def node_batches(self) -> tuple[int, ...]:
        """Samples per step on each node."""
        return tuple(node.plan.node_batch for node in self.nodes)
