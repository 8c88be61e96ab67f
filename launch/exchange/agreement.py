"""What do the nodes tell each other about a step? Loss, times, size, kinds of gradient and wishes.

They do when the last of them has computed its gradients, most of which may still be on their way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.exchange.board import Board


class Agreement:
    """One step's, on its way between all ranks. Collective: every rank makes one for each step.

    Args:
        comm: Of the ranks.
        board: Of this node: holds what its workers say, and is told what holds for all nodes.
        computed_s: Time that this node took to compute its gradients.
        wishes: Of this node, as bits.
    """

    def __init__(self, comm: MPI.Comm, board: Board, computed_s: float, wishes: int) -> None:
        self._board = board
        self._kinds = board.kinds.max(0)
        self._highest = np.empty_like(self._kinds)
        is_full = board.is_full.min()
        self._mine = np.array([board.losses.sum(), computed_s, wishes, is_full])
        self._said: NDArray[Any] = np.empty((comm.size, len(self._mine)))
        self._requests = [
            comm.Iallreduce(self._kinds, self._highest, MPI.MAX),
            comm.Iallgather(self._mine, self._said),
        ]

    def is_done(self) -> bool:
        """Look whether everybody has spoken; the board then holds what follows."""
        if not MPI.Request.Testall(self._requests):
            return False
        self._board.kinds_of_all[:] = self._highest
        # In the order of the ranks: the same on each of them, to the last bit.
        self._board.loss_of_all[0] = self._said[:, 0].sum()
        return True

    @property
    def computed_s(self) -> tuple[float, ...]:
        """What each node took."""
        return tuple(self._said[:, 1].tolist())

    @property
    def wishes(self) -> int:
        """Those of any node."""
        return int(np.bitwise_or.reduce(self._said[:, 2].astype(np.int64)))

    @property
    def is_full(self) -> bool:
        """Whether every node's share was whole, and not of the rest of an epoch."""
        return bool(self._said[:, 3].all())
