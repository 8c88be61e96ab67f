"""A rank whose sums come late, as over a slow network: ``JOB...``."""

from __future__ import annotations

import sys
import time

from mpi4py import MPI
from rank_of_four import run_all

from launch.gradient_sync.algorithms.ring import Ring
from launch.gradient_sync.allreduce import server
from launch.gradient_sync.allreduce.bucket_sum import FlatArray
from launch.gradient_sync.allreduce.encoded_sum import EncodedSum
from launch.gradient_sync.wire_formats.fp32 import ExactFormat

_HELD_S = 0.02


class SlowSum(EncodedSum):
    """Keeps each sum for a while."""

    def __init__(self, comm: MPI.Comm, **_: str) -> None:
        super().__init__(comm, Ring(), ExactFormat())
        self._held: list[tuple[float, FlatArray]] = []

    def take_finished(self) -> list[FlatArray]:
        now = time.monotonic()
        self._held += [(now + _HELD_S, block) for block in super().take_finished()]
        done = [block for until, block in self._held if until <= now]
        self._held = [(until, block) for until, block in self._held if until > now]
        return done


if __name__ == "__main__":
    server.make_sum = SlowSum
    run_all(sys.argv[1:])
