"""Ray Train: a TorchTrainer with one worker for each core."""

from __future__ import annotations

import sys

from planner.peers._base import Peer, PeerSetup, PeerStart, find_program

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class RayTrain(Peer):
    """On one host the script starts Ray; on several, ``ray start`` does on each."""

    distribution = "ray"
    modules = ("ray",)
    script = "ray_train.py"

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        # The trainer itself reserves a core beside those of its workers.
        cores = str(setup.processes + 1)
        options = ["--workers", str(setup.world_size), "--cores", cores]
        driver = [sys.executable, *self.training_command(setup, *options)]
        if setup.is_local:
            return [PeerStart(command=driver, environment=_QUIET)]
        ray = find_program("ray")
        head = f"{setup.first.address}:{setup.ports[0]}"
        starts = [
            PeerStart(
                command=[
                    *(ray, "start", "--block", "--disable-usage-stats", "--num-cpus", cores),
                    *("--node-ip-address", host.address),
                    *(
                        ("--head", "--port", str(setup.ports[0]), "--include-dashboard=false")
                        if number == 0
                        else ("--address", head)
                    ),
                    *(("--temp-dir", str(setup.folder / "ray")) if number == 0 else ()),
                ],
                host=number,
                environment=_QUIET,
            )
            for number, host in enumerate(setup.hosts)
        ]
        join = [*driver, "--address", head, "--nodes", str(len(setup.hosts))]
        return [*starts, PeerStart(command=join, environment=_QUIET)]
