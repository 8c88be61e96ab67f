"""Does the program of every rank still run? Connections stay whole where one stands still."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from launch.patience import Patience

if TYPE_CHECKING:
    from mpi4py import MPI

_BEAT_EVERY_S = 2.0
_SILENCE_LIMIT_S = 12.0


class Pulse:
    """Signs of life that every rank sends rank 0, which says itself that it is alive.

    One thread of a rank calls `look` a few times a second; it never waits.

    Args:
        comm: All ranks; nothing else may use it.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._beat = np.zeros(1, np.uint8)
        self._sending: MPI.Request | None = None
        self._beat_at = time.monotonic()
        others = range(1, comm.Get_size()) if comm.Get_rank() == 0 else ()
        self._patience = {rank: Patience() for rank in others}

    def look(self) -> tuple[int, ...]:
        """Beat when it is time; on rank 0, give the ranks that have not for too long."""
        with contextlib.suppress(RuntimeError):  # a connection has broken: others see that better
            if self._comm.Get_rank() == 0:
                return self._find_silent()
            self._send()
        return ()

    def _find_silent(self) -> tuple[int, ...]:
        silent = []
        for rank, patience in self._patience.items():
            while self._comm.Iprobe(rank):
                self._comm.Recv(self._beat, rank)
                patience.restart()
            if patience.look() > _SILENCE_LIMIT_S:
                silent.append(rank)
        return tuple(silent)

    def _send(self) -> None:
        if time.monotonic() < self._beat_at or not (self._sending is None or self._sending.Test()):
            return
        self._sending = self._comm.Isend(self._beat, 0)
        self._beat_at = time.monotonic() + _BEAT_EVERY_S
