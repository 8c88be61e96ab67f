"""Horovod, started by mpirun."""

from __future__ import annotations

import sys

from planner.peers._base import Peer, PeerSetup, PeerStart


class Horovod(Peer):
    """The command of Horovod's guide for Open MPI."""

    distribution = "horovod"
    modules = ("horovod",)
    script = "horovod_mpi.py"
    needs_mpirun = True

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        if self.version is None:
            return "not installed: it is built from its source, see docs/compare.md"
        return super().find_obstacle(setup)

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        command = [*setup.mpirun, sys.executable, *self.training_command(setup)]
        return [PeerStart(command=command, host=0 if setup.is_local else None)]
