"""DistributedDataParallel over gloo, started by torchrun."""

from __future__ import annotations

from planner.peers._base import Peer, PeerSetup, PeerStart, torchrun_starts


class TorchrunDdp(Peer):
    """One process for each core. torchrun gives each of them one thread."""

    script = "torchrun_ddp.py"

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        return torchrun_starts(setup, self.training_command(setup))
