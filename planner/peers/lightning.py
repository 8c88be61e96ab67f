"""PyTorch Lightning: its Trainer on one device of each host, as it is by default."""

from __future__ import annotations

import sys

from planner.peers._base import Peer, PeerSetup, PeerStart

_NO_MPI = {"OMPI_MCA_btl": "self"}
"""Lightning looks whether mpirun has started it, by what listens on all addresses otherwise."""


class Lightning(Peer):
    """The whole CPU is one device of the Trainer; several processes are its strategy ``ddp``."""

    distribution = "lightning"
    modules = ("lightning",)
    script = "lightning_trainer.py"
    is_one_process = True

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        options = ("--processes", str(setup.processes), "--nodes", str(len(setup.addresses)))
        command = [sys.executable, *self.training_command(setup, *options)]
        if setup.is_local:
            return [PeerStart(command=command, environment=_NO_MPI)]
        # What Lightning's guide has for a cluster without a scheduler.
        where = {"MASTER_ADDR": setup.addresses[0], "MASTER_PORT": str(setup.ports[0]), **_NO_MPI}
        return [
            PeerStart(command=command, host=number, environment={**where, "NODE_RANK": str(number)})
            for number in range(len(setup.addresses))
        ]
