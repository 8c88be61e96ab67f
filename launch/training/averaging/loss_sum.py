"""Sum of the losses of a step's parts, with what each part counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsFloat

from torch import nn


@dataclass(frozen=True, slots=True)
class LossSum:
    """Losses of some samples, each scaled by its part in the step; their gradients likewise.

    Where the loss is a mean over samples, a part's scale is its share of the samples of all nodes,
    and the sum over all nodes is the mean. Where the use case has a `UseCase.weight`, the scale is
    the part's weight, divided by the samples of all nodes. The sums of losses and of gradients are
    then divided by that of the scales, which comes with them and needs no message of its own.
    """

    loss: SupportsFloat
    weight: float | None = None
    """Sum of the scales; ``None`` where that of all nodes is 1."""

    def divide_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Turn gradients that are sums over all nodes into those of the mean.

        Where nothing has a weight, no parameter has a gradient afterwards.
        """
        if self.weight is None:
            return
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if self.weight:
                parameter.grad.div_(self.weight)
            else:
                parameter.grad = None


def mean_of(loss: float, weight: float | None) -> tuple[float, float | None]:
    """Divide a sum of losses, see `LossSum`; return the mean, and the factor of the gradients.

    The factor is ``None`` where they stay as they are, and 0 where nothing has a weight.
    """
    if weight is None:
        return loss, None
    return (loss / weight, 1 / weight) if weight else (0.0, 0.0)
