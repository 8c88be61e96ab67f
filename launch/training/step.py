"""Contract of what a strategy builds: one worker's part of an optimizer step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat

from torch import nn
from torch.optim import Optimizer

from launch.checkpoints.training_state import TrainingState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize
from launch.training.averaging.noise_meter import NoiseMeter


class TrainStep(ABC):
    """One worker's part of an optimizer step, built by a strategy.

    Attributes:
        model: Has the current parameters after `finish`, and current buffers after `sync_model`:
            for validation and for saving.
        part: Part of each node batch that this worker reads; ``None`` where it reads nothing, as
            the later stages of a pipeline do.
        optimizers: Of this worker. A learning rate must be changed in the groups of each. A step
            with a `prepare` has them after it.
        noise_meter: Measures the gradient noise scale, after `measure_noise`.
        facts: Findings while the step was made, for people and programs that read reports.
    """

    model: nn.Module
    part: Part | None
    optimizers: Sequence[Optimizer]
    noise_meter: NoiseMeter | None = None
    facts: Mapping[str, Any] = {}

    def prepare(self, read_few: Callable[[], Batch]) -> None:
        """Prepare the step with some samples, once, before the first step. Collective.

        For steps that depend on a batch: a pipeline is cut by the times of its layers. Nothing by
        default.

        Args:
            read_few: Reads the first training samples, as `run` is given them.
        """
        return

    def noise_obstacle(self) -> str | None:
        """Return why the gradient noise scale cannot be measured, ``None`` where it can.

        The same on each worker of the node, after `prepare`.
        """
        return "gradients of parts of a step are not seen apart here"

    def measure_noise(self, cost_limit: float) -> None:
        """Begin to measure the gradient noise scale. Collective over all nodes.

        Only where none of them has an obstacle.

        Args:
            cost_limit: Share of the steps' time that it may take; with 1 every step is measured.
        """
        raise NotImplementedError

    @abstractmethod
    def run(self, share: Batch | None, size: BatchSize) -> SupportsFloat:
        """Make one step. Collective: every worker of the node calls it with its share.

        Args:
            share: This worker's samples; ``None`` where the last batch of an epoch leaves none,
                and where it reads nothing.
            size: Samples of all workers together, here and on all nodes.

        Returns:
            Mean loss over the samples of all nodes; a `launch.training.loss.PendingLoss` if a GPU
            still computes it.
        """

    @abstractmethod
    def place(self, batch: Batch) -> Batch:
        """Move a batch to the device and memory format of ``model``."""

    def take_warning(self) -> str | None:
        """Return what a user should know and the last step has found out, once each."""
        return None

    def finish(self) -> None:
        """Make the updates that the last step has deferred to the next. Collective.

        Before anything but a step: gradients of other nodes may be in flight while the next step
        begins. Nothing by default.
        """
        return

    def sync_model(self) -> None:
        """Give ``model`` one state on every worker, after `finish`. Collective.

        A worker may have old values of parameters that others train; buffers, such as the running
        statistics of BatchNorm, each worker has from its own share.
        """
        return

    @abstractmethod
    def describe_state(self) -> TrainingState:
        """Describe this worker's state between two steps, for a checkpoint to write or restore.

        Nothing is copied. A weight, and the state of an optimizer for an element, is listed for
        writing by one worker of the node, and for reading by each that needs it.
        """

    def close(self) -> None:
        """Close what the step opened, after every worker's last step. Nothing by default.

        Not called where a worker fails: it may wait for the others.
        """
        return
