"""Clipping of a gradient whose parts several workers hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from launch.local_group.group import LocalGroup

_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_, so that both give the same factor


class GradientClipper:
    """Computes the factor for workers that hold different parts of one gradient.

    Collective: every worker of ``group`` builds one with the same norm, and calls `factor` once in
    each step with the parts that no other worker counts: those of its stage of a pipeline, or
    those that it sums for all replicas. The group may be wider than the one that averages.

    Args:
        max_norm: Largest Euclidean norm of the whole gradient.
    """

    def __init__(self, max_norm: float, group: LocalGroup) -> None:
        self._max_norm = max_norm
        self._group = group
        # Two rows in turn: a worker that is ahead by one step writes to the one that is not read.
        self._rows = group.share_bytes(2 * 8 * group.size).view(torch.float64).view(2, group.size)
        self._steps = 0

    def factor(self, square_sum: float) -> float:
        """Return the factor of this step's gradient, the same on each worker.

        Args:
            square_sum: Sum of the squares of this worker's part, see `square_sum`.
        """
        row = self._rows[self._steps % 2]
        self._steps += 1
        row[self._group.local_rank] = square_sum
        self._group.barrier()
        return clip_factor(float(row.sum()), self._max_norm)


def clip_factor(square_sum: float, max_norm: float) -> float:
    """Return the factor that shortens a gradient to a norm: 1 where it is short enough.

    For a gradient that is not finite, the same as `torch.nn.utils.clip_grad_norm_`.

    Args:
        square_sum: Sum of the squares of the whole gradient.
        max_norm: Largest Euclidean norm.
    """
    factor = max_norm / (math.sqrt(square_sum) + _EPSILON)
    return 1.0 if factor >= 1.0 else factor  # in this order NaN stays NaN


def square_sum(gradients: Iterable[Tensor]) -> float:
    """Sum the squares of all elements.

    Each tensor's are summed in its own precision, as torch does, and the tensors' in float64.
    """
    return add_squares([torch.linalg.vector_norm(elements(one.detach())) for one in gradients])


def add_squares(norms: Sequence[Tensor]) -> float:
    """Add the squares of norms, in float64."""
    return float(torch.stack([norm.double() for norm in norms]).square().sum()) if norms else 0.0


def elements(gradient: Tensor) -> Tensor:
    """Give the elements of a gradient, of a sparse one those that are kept, each once.

    Not every release of PyTorch that we support takes the norm of a sparse tensor.
    """
    return gradient.coalesce().values() if gradient.is_sparse else gradient
