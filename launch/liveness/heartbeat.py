"""Heartbeat: every rank sends rank 0 a message every two seconds.

A connection stays open when the program at its other end is stopped or hangs; missing messages show
it.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from launch.liveness.inactivity import InactivityTimer

if TYPE_CHECKING:
    from mpi4py import MPI

_HEARTBEAT_INTERVAL_S = 2.0
_HEARTBEAT_TIMEOUT_S = 12.0


class Heartbeat:
    """Heartbeats that every other rank sends to rank 0.

    One thread of a rank calls `poll` a few times a second; it never waits.

    Args:
        comm: All ranks; nothing else may use it.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._beat = np.zeros(1, np.uint8)
        self._sending: MPI.Request | None = None
        self._next_beat_at = time.monotonic()
        others = range(1, comm.Get_size()) if comm.Get_rank() == 0 else ()
        self._timers = {rank: InactivityTimer() for rank in others}

    def poll(self) -> tuple[int, ...]:
        """Send a heartbeat when it is due; on rank 0, find ranks that have sent none in time."""
        with contextlib.suppress(RuntimeError):  # a connection has broken: others see that better
            if self._comm.Get_rank() == 0:
                return self._find_silent()
            self._send()
        return ()

    def _find_silent(self) -> tuple[int, ...]:
        silent = []
        for rank, timer in self._timers.items():
            while self._comm.Iprobe(rank):
                self._comm.Recv(self._beat, rank)
                timer.restart()
            if timer.poll() > _HEARTBEAT_TIMEOUT_S:
                silent.append(rank)
        return tuple(silent)

    def _send(self) -> None:
        if time.monotonic() < self._next_beat_at or not (
            self._sending is None or self._sending.Test()
        ):
            return
        self._sending = self._comm.Isend(self._beat, 0)
        self._next_beat_at = time.monotonic() + _HEARTBEAT_INTERVAL_S
