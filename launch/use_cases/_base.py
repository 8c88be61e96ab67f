"""Contract of every use case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

    from launch.reports import PreparationReporter


class UseCase:
    """A training's model, data, loss and optimizer. Keeps no state between calls.

    A class of one's own needs no inheritance: the shape is enough, and what is optional is
    filled in from here. Without arguments it must be possible to make one.

    Attributes:
        name: Its name in reports.
        default_batch: The baseline's node batch, in samples.
        max_gradient_norm: Where set, the gradient of each step is scaled down to this Euclidean
            norm over all parameters, as `torch.nn.utils.clip_grad_norm_` does. Optional.
    """

    name: str
    default_batch: int = 32
    max_gradient_norm: float | None = None

    def model(self) -> nn.Module:
        """Make a fresh model on the CPU, its weights drawn from torch's global generator."""
        raise NotImplementedError

    def dataset(self, data: Path | None, *, train: bool) -> Dataset[Any]:
        """Open the training or the validation samples: a map-style dataset with a length.

        Runs in every worker and must be quick: slow work belongs into `prepare`. Samples
        are pairs of input and target that torch's default collation can stack. Every node and
        every worker must find the same samples in the same order. A dataset that also has the
        methods of `launch.data.pictures.Pictures` is decoded once instead of in every epoch.

        Args:
            data: The folder or file that the user named with ``--data``, if any.
            train: Training samples with their random transforms, or validation samples.

        Raises:
            UseCaseError: The data cannot be read.
        """
        raise NotImplementedError

    def loss(self, output: Any, target: Any) -> Tensor:
        """Compute the mean loss over the batch, a scalar: only means of shares add up."""
        raise NotImplementedError

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Make the optimizer of these parameters."""
        raise NotImplementedError

    def schedule(self, optimizer: Optimizer, steps_per_epoch: int) -> LRScheduler | None:
        """Make the schedule of the learning rate, ``None`` for a constant one. Optional.

        Its ``step()`` is called after every optimizer step. One is made in each worker, for the
        optimizer of that worker's part, so that it may depend on the settings of the optimizer's
        groups alone.
        """
        return None

    def layers(self, model: nn.Module) -> nn.Sequential | None:
        """Return the model as consecutive layers, ``None`` where it cannot be cut.

        Optional: it enables the strategies that put layers on different devices. The layers
        hold the very modules of ``model``, and compute the same.
        """
        from torch import nn

        return model if isinstance(model, nn.Sequential) else None

    def metrics(self, output: Any, target: Any) -> dict[str, float]:
        """Compute more than the loss of a validation batch: means over the batch. Optional."""
        return {}

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        """Make the data ready, once per node, before any worker opens it. Optional.

        May be called by several processes at once, and when everything is ready already.

        Raises:
            UseCaseError: The data cannot be made ready.
        """
        return
