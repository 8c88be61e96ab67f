"""Contract of every use case."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

    from launch.reports import PreparationReporter


class UseCase:
    """A training's model, data, loss and optimizer. Keeps no state between calls.

    A class of one's own needs no inheritance: the shape is enough, and what is optional is
    filled in from here. What its constructor takes is given by ``--set key=value``, as an int,
    float, bool or str by its signature; the rest needs defaults. An argument called ``data`` is
    given the path that ``--data`` names, for models that depend on it.

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
        are pairs of input and target that torch's default collation can stack, or whatever
        `collate` and `step` know. Every node and every worker must find the same samples in the
        same order. A dataset that also has the methods of `launch.data.pictures.Pictures` is
        decoded once instead of in every epoch. One whose attribute ``is_generated`` is ``True`` has
        samples that were made up, which every result of them is marked with.

        Args:
            data: The folder or file that the user named with ``--data``, if any.
            train: Training samples with their random transforms, or validation samples.

        Raises:
            UseCaseError: The data cannot be read.
        """
        raise NotImplementedError

    def collate(self, samples: Sequence[Any]) -> Any:
        """Make a batch of samples, such as padded text; torch's default collation. Optional.

        A batch nests tensors in dicts, lists and tuples. It is cut into shares and micro-batches
        along the first dimension of each tensor, which counts samples, and along lists of as many
        texts, numbers or other things. Tensors without dimensions go to all parts. Runs in the
        loading processes too.
        """
        from torch.utils.data import default_collate

        return default_collate(list(samples))

    def size(self, batch: Any) -> int:
        """Count the samples of a batch: the first dimension of its first tensor. Optional."""
        from launch.data.batch import num_samples

        return num_samples(batch)

    def step(self, model: Callable[..., Any], batch: Any) -> Tensor:
        """Compute the mean loss over a batch, a scalar; ``loss(model(input), target)``. Optional.

        For batches that are no pairs, and for losses that need more than an output. `loss` is not
        needed then. A pipeline cannot cut it: `pipeline` and `hybrid` are left out. In validation,
        `metrics` is given the model's last output, and the batch as its target.

        Args:
            model: To be called; in compiled plans, a module that stands for the model.
            batch: On the model's device.
        """
        inputs, target = batch
        return self.loss(model(inputs), target)

    def weight(self, batch: Any) -> float | Tensor:
        """Give what the mean of a batch's loss is over; the number of samples. Optional.

        The tokens of padded text, the labels that are not ignored, the sum of the labels' class
        weights: the loss times it must add up over parts of a batch. Gradients and losses of
        micro-batches, workers and nodes are added with it, and divided by their sum. A part whose
        weight is 0 is left out; a step in which all are 0 changes nothing, and its loss is 0.

        Args:
            batch: On the model's device. On a GPU, the step waits for the number.
        """
        return self.size(batch)

    def loss(self, output: Any, target: Any) -> Tensor:
        """Compute the mean loss over the batch, a scalar: only means of shares add up.

        The mean is over the samples, or over what `weight` gives.
        """
        raise NotImplementedError

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Make the optimizer of these parameters, and of no others; some may be left out.

        They are those of a whole model or, in a pipeline, of one stage.
        """
        raise NotImplementedError

    def schedule(
        self, optimizer: Optimizer, steps_per_epoch: int, epochs: int
    ) -> LRScheduler | None:
        """Make the schedule of the learning rate, ``None`` for a constant one. Optional.

        ``epochs`` may be left out of the arguments. A trial gives more epochs than it trains.

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


def is_own(case: UseCase, name: str) -> bool:
    """Whether a use case has a method of its own, in place of the contract's default."""
    method = getattr(case, name)
    return getattr(method, "__func__", method) is not getattr(UseCase, name)


def takes_epochs(case: UseCase) -> bool:
    """Whether a use case's `UseCase.schedule` wants the number of epochs."""
    try:
        signature(case.schedule).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # some callables written in C have none
        return True
    return True
