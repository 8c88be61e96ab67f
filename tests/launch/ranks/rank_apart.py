"""A rank that works in a folder of its own, as if other hosts did not see it: ``FOLDER JOB...``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import rank_of_four

from launch.gradient_sync.allreduce.server import AllReduceServer
from launch.rank import rank
from launch.workers.fork_server_pool import ForkServerPool

_EVERY = 10


class PunctualServer(AllReduceServer):
    """Asks for a checkpoint by the number of a step, where others go by the clock."""

    def _start_agreement(self, *arguments: Any) -> None:
        if self._number % _EVERY == 0:
            self.set_control_flags(checkpoint=True)
        super()._start_agreement(*arguments)


if __name__ == "__main__":
    folder, *jobs = map(Path, sys.argv[1:])
    own = folder / f"rank{os.environ['OMPI_COMM_WORLD_RANK']}"
    own.mkdir()
    os.chdir(own)
    with ForkServerPool() as servers:
        for job in jobs:
            is_punctual = job.name == "punctual-job.json"
            rank.AllReduceServer = PunctualServer if is_punctual else AllReduceServer
            if status := rank.main(job, rank_of_four.FOUR, servers):
                sys.exit(status)
