"""Hugging Face Accelerate: by its own launcher and mpirun; on several hosts by torchrun."""

from __future__ import annotations

import sys

from planner.peers._base import Peer, PeerSetup, PeerStart, torchrun_starts


class Accelerate(Peer):
    """The commands of Accelerate's guide for several CPU processes."""

    distribution = "accelerate"
    modules = ("accelerate",)
    script = "hf_accelerate.py"
    needs_mpirun = True

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        script = self.training_command(setup)
        if not setup.is_local:
            return torchrun_starts(setup, script)
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu"]
        launch += ["--num_machines", "1", "--num_processes", str(setup.processes)]
        launch += ["--mpirun_hostfile", str(setup.folder / "hosts")]
        launch += ["--main_process_port", str(setup.ports[0])]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        files = {"hosts": f"localhost slots={setup.processes}\n"}
        return [PeerStart(command=[*launch, *script], environment=root, files=files)]
