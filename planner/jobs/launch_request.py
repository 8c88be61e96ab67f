"""Request of a training: what the user wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from launch.job import CheckpointConfig
from launch.workload import Workload
from planner.plans.stored_plan import StoredPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What the user asks of a training."""

    workload: Workload
    epochs: int = 1
    plan_id: int | None = None
    plan: StoredPlan | None = None
    """On this machine, in place of a stored one: nothing stores it."""

    known_as: str | None = None
    """Where the use case lay when its plans were found; ``None``: it is looked for."""

    global_batch: int | None = None
    accumulates: bool = False
    """Whether a step of the global batch adds up passes of the plans' own batches."""

    allow_stale: bool = False
    all_hosts: bool = False
    """Use every host, whatever is predicted of fewer."""

    wire: str = "fp32"
    """How gradients are written between nodes: ``fp32``, or one that carries its errors over."""

    all_reduce: str = "ring"
    """How they are summed between nodes."""

    lr_scaling: str | None = None
    """How the learning rate goes with the batch, see `launch.plan.Plan`; ``None``: as the plans
    say."""

    measures_noise: bool = True
    """Whether to measure the gradient noise scale."""

    keep_shares: bool = False
    """Leave the shares alone while training, even where a node becomes slower."""

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Where checkpoints are written, and how often. What `resume` finds is added to it."""

    resume: bool = False
    """Resume from the newest of them."""

    max_restarts: int = 0
    """How often to go on from the last checkpoint after an accident."""

    allow_nan: bool = False
    """Train on where a loss is NaN or infinite."""

    keep_best: bool = False
    """Keep the weights of the best validation."""

    onnx: Path | None = None
    """File on the first host to which the trained model is exported."""

    tensorboard: Path | None = None
    """Folder on this machine for the training's event files."""

    hang_timeout_s: float | None = None
    """Time without a step after which a node has failed; ``None``: by the time of its steps."""
