"""Ray Train: a TorchTrainer with one worker for each core."""

from __future__ import annotations

import re
import secrets
import sys
from importlib.util import find_spec

from launch.packages.install_command import install_command
from planner.peers._base import Peer, PeerSetup, PeerStart, find_program

_FIRST_WITH_TOKENS = (2, 52)
_TOKEN_BYTES = 32

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "120",  # so many seconds may pass until the head is there
}

_ANY_PORTS = [
    *("--min-worker-port", "0", "--max-worker-port", "0"),
    *("--dashboard-agent-listen-port", "0"),
]
"""Whatever is free, and not the ports that `ray start` has for these."""


class RayTrain(Peer):
    """On one host the script starts Ray; on several, ``ray start`` does on each."""

    distribution = "ray"
    modules = ("ray",)
    script = "ray_train.py"
    listens_everywhere = True

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        if (why := super().find_obstacle(setup)) is not None or setup.is_local:
            return why
        if tuple(map(int, re.findall(r"\d+", self.version or "")[:2])) < _FIRST_WITH_TOKENS:
            wanted = f"ray[train]>={'.'.join(map(str, _FIRST_WITH_TOKENS))}"
            return f"ray {self.version} lets in who reaches it: {install_command(wanted)}"
        return None

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        # Ray would make a token in the user's home, and ask other hosts for it without sending it.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(_TOKEN_BYTES)}
        environment = {**_SETTINGS, **token}
        # The trainer itself reserves a core beside those of its workers.
        cores = str(setup.processes + 1)
        options = ["--workers", str(setup.world_size), "--cores", cores]
        driver = [sys.executable, *self.training_command(setup, *options)]
        if setup.is_local:
            return [PeerStart(command=driver, environment=environment)]
        head = f"{setup.addresses[0]}:{setup.ports[0]}"
        starts = [
            PeerStart(
                command=[
                    *(find_program("ray"), "start", "--block", "--disable-usage-stats"),
                    *("--num-cpus", cores, "--node-ip-address", address),
                    *_ANY_PORTS,
                    *(_head_options(setup) if number == 0 else ("--address", head)),
                ],
                host=number,
                environment=environment,
            )
            for number, address in enumerate(setup.addresses)
        ]
        join = [*driver, "--address", head, "--nodes", str(len(setup.addresses))]
        return [*starts, PeerStart(command=join, environment=environment)]


def _head_options(setup: PeerSetup) -> list[str]:
    port, client_port = map(str, setup.ports[:2])
    # Short, for it holds sockets, whose paths have 107 bytes at most.
    options = ["--head", "--port", port, "--temp-dir", str(setup.folder / "r")]
    options += ["--include-dashboard=false", "--dashboard-port", "0"]
    if find_spec("grpc") is not None:  # then Ray serves clients, at a fixed port unless told one
        options += ["--ray-client-server-port", client_port]
    return options
