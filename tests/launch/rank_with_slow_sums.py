"""A rank whose sums come late, as over a slow network: ``JOB...``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import rank_of_four

from launch.exchange import exchange
from launch.exchange.block_sum import Block
from launch.exchange.ring import RingSum
from launch.rank import main
from launch.workers.fork_servers import ForkServers

_HELD_S = 0.02


class SlowSum(RingSum):
    """Keeps each sum for a while."""

    def finished(self) -> list[Block]:
        now = time.monotonic()
        self.kept = [*getattr(self, "kept", []), *((now, b) for b in super().finished())]
        done = [block for since, block in self.kept if now - since >= _HELD_S]
        self.kept = [(since, block) for since, block in self.kept if now - since < _HELD_S]
        return done


if __name__ == "__main__":
    exchange.RingSum = SlowSum
    with ForkServers() as servers:
        for job_file in map(Path, sys.argv[1:]):
            rank = os.environ["OMPI_COMM_WORLD_RANK"]
            with job_file.with_name(f"reports-{rank}").open("wb") as said:
                os.dup2(said.fileno(), sys.stdout.fileno())
            if status := main(job_file, rank_of_four.FOUR, servers):
                sys.exit(status)
