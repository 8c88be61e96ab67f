"""DistributedDataParallel under torch.backends.xeon.run_cpu, which binds cores and memory."""

from __future__ import annotations

import shutil

from planner.peers._base import Peer, PeerSetup, PeerStart, torchrun_starts


class RunCpuDdp(Peer):
    """torchrun starts run_cpu for each process, which binds it to its share of the cores."""

    script = "torchrun_ddp.py"

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        if shutil.which("lscpu") is None:
            return "no lscpu on the path, which run_cpu asks: install util-linux"
        return super().find_obstacle(setup)

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        run_cpu = ["-m", "torch.backends.xeon.run_cpu"]
        return torchrun_starts(setup, [*run_cpu, *self.training_command(setup)])
