"""Mean of a validation over the workers of all nodes, known to each of them."""

from __future__ import annotations

import torch

from launch.gradient_sync.node_channel.requests import RequestClient
from launch.local_group.group import LocalGroup


class ValidationMean:
    """Averages over what the workers have, each with its weight.

    Collective: every worker of all nodes makes one, and calls `of` with the others.

    Args:
        group: The workers of this node.
        rank: Of this node, ``None`` where there is none.
    """

    def __init__(self, group: LocalGroup, rank: RequestClient | None) -> None:
        self._group = group
        self._rank = rank
        self._sums = group.share_bytes(16 * group.size).view(torch.float64).view(group.size, 2)

    def of(self, loss_sum: float, weight: float) -> float | None:
        """Give the mean loss; ``None`` where nobody has a weight.

        Args:
            loss_sum: Of this worker's batches, each times its weight.
            weight: Sum of these weights: of the samples, where the use case does not say.
        """
        self._sums[self._group.local_rank] = torch.tensor([loss_sum, weight], dtype=torch.float64)
        self._group.barrier()
        loss, count = self._sums.sum(0).tolist()
        self._group.barrier()  # all have read
        if self._rank is not None:
            loss, count = self._rank.add(loss), self._rank.add(count)
        return loss / count if count else None
