"""What does a strategy build? One worker's part of an optimizer step: the contract, said once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat

from torch import nn
from torch.optim import Optimizer

from launch.checkpoints.held import HeldState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize


class TrainStep(ABC):
    """One worker's part of an optimizer step, built by a strategy.

    Attributes:
        model: Holds the current parameters after `finish`, and everything else after `agree`: for
            validation and for saving.
        part: What this worker reads of each node batch; ``None`` where it reads nothing, as the
            later stages of a pipeline do.
        optimizers: Those that this worker drives. Whoever changes a learning rate changes it in
            the groups of each. Those of a step that has something to `prepare` are there after it.
        facts: What was found while the step was made, for people and programs that read reports.
    """

    model: nn.Module
    part: Part | None
    optimizers: Sequence[Optimizer]
    facts: Mapping[str, Any] = {}

    def prepare(self, read_few: Callable[[], Batch]) -> None:
        """Look at some samples, once, before the first step. Collective. Nothing by default.

        For steps that depend on what a batch looks like: a pipeline is cut by the times of its
        layers.

        Args:
            read_few: Reads the first training samples, as `run` is given them.
        """
        return

    @abstractmethod
    def run(self, share: Batch | None, size: BatchSize) -> SupportsFloat:
        """Make one step. Collective: every worker of the node calls it with its share.

        Args:
            share: This worker's samples; ``None`` where the last batch of an epoch leaves none,
                and where it reads nothing.
            size: Samples of all workers together, here and on all nodes.

        Returns:
            Mean loss over the samples of all nodes; a `launch.training.loss.LaterLoss` where a GPU
            still computes it.
        """

    @abstractmethod
    def place(self, batch: Batch) -> Batch:
        """Bring a batch to where and how ``model`` wants it."""

    def finish(self) -> None:
        """Do what the last step may have left to the next one. Collective. Nothing by default.

        Before anything but a step: an update may wait for gradients of other nodes, which are on
        their way while the next step begins.
        """
        return

    def agree(self) -> None:
        """Bring ``model`` to one state on every worker, after `finish`. Collective.

        A worker may hold old values of what others train, and what a model keeps beside its
        parameters, such as the running statistics of BatchNorm, each worker has from its own
        share.
        """
        return

    @abstractmethod
    def held(self) -> HeldState:
        """Name what this worker holds between two steps, for a checkpoint to keep or to fill.

        Nothing is copied. A weight, and the state of an optimizer for an element, is named for
        writing by one worker of the node, and for reading by each that needs it.
        """

    def close(self) -> None:
        """End what the step started, after every worker's last step. Nothing by default.

        Where a worker fails nobody calls it: to end in order, the others may have to be waited for.
        """
        return
