"""Agreement of the nodes on a step: loss, weight, gradient noise, times, kinds and control flags.

It is made when the last node has computed its gradients; most of their sums may be in flight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.gradient_sync.node_channel.shared_state import SharedStepState


class Agreement:
    """Agreement on one step, in flight between all ranks. Collective: each rank makes one a step.

    Every rank sends all others one message: what it says waits behind the gradients on the same
    connections, and the workers wait for it.

    Args:
        comm: Of the ranks.
        state: Of this node: read for its workers, written for all nodes.
        computed_s: Time that this node took to compute its gradients.
        control_flags: Of this node, as bits.
    """

    def __init__(
        self, comm: MPI.Comm, state: SharedStepState, computed_s: float, control_flags: int
    ) -> None:
        self._state = state
        is_full = state.is_full.min()
        loss, weight = state.losses.sum(), state.weights.sum()
        noise = state.noise.sum(0)
        values = np.array([loss, weight, computed_s, control_flags, is_full, *noise])
        self._own = np.concatenate([values.view(np.uint8), state.kinds.max(0)])
        self._all = np.empty((comm.size, self._own.size), np.uint8)
        self._all_values: NDArray[Any] = np.empty((comm.size, values.size))
        self._request = comm.Iallgather(self._own, self._all)

    def is_done(self) -> bool:
        """Poll without waiting; once all ranks have sent, write the results into the state."""
        if not self._request.Test():
            return False
        values, kinds = np.split(self._all, [self._all_values[0].nbytes], axis=1)
        self._all_values.view(np.uint8)[:] = values
        self._state.global_kinds[:] = kinds.max(0)
        # In the order of the ranks: the same on each of them, to the last bit.
        self._state.global_loss[:] = self._all_values[:, :2].sum(0)
        self._state.global_noise[:] = self._all_values[:, 5:].sum(0)
        return True

    @property
    def computed_s(self) -> tuple[float, ...]:
        """Time that each node took to compute its gradients."""
        return tuple(self._all_values[:, 2].tolist())

    @property
    def control_flags(self) -> int:
        """Flags that are set on any node."""
        return int(np.bitwise_or.reduce(self._all_values[:, 3].astype(np.int64)))

    @property
    def is_full(self) -> bool:
        """Whether no node's share was of the rest of an epoch, smaller than the others."""
        return bool(self._all_values[:, 4].all())
