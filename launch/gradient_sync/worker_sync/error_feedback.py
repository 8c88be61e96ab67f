"""Errors of a wire format, on their way between the nodes and a checkpoint.

Each rank carries over to the next step what its messages have not said. A checkpoint has one sum of
that, over all nodes: it is independent of their number and their plans. Writing one leaves all of
it to node 0, so that a training that goes on from it does the same as one that just goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from launch.gradient_sync.node_channel.requests import RequestClient
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer


class ErrorFeedback:
    """A worker's part in it. Each method is collective over the workers of all nodes."""

    def __init__(
        self, rank: RequestClient, reducers: Sequence[CrossNodeReducer], *, is_source: bool
    ) -> None:
        self._rank = rank
        self._reducers = reducers
        self._is_source = is_source

    def fold(self) -> dict[str, Tensor]:
        """Give the errors by parameter, each on one worker of node 0; valid until the next step."""
        if not self._rank.fold_errors() or not self._is_source:
            return {}
        return dict(pair for one in self._reducers for pair in one.gradients(only_sums=True))

    @torch.no_grad()
    def restore(self, errors: Iterable[tuple[str, Tensor]]) -> bool:
        """Take over errors by parameter; return whether the wire format can."""
        if self._is_source:
            gradients: dict[str, list[Tensor]] = {}
            for reducer in self._reducers:
                for name, gradient in reducer.gradients():
                    gradients.setdefault(name, []).append(gradient.zero_())
            for name, error in errors:
                for gradient in gradients.get(name, ()):
                    gradient.copy_(error)
        return self._rank.take_errors()
