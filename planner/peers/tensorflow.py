"""TensorFlow's MultiWorkerMirroredStrategy: one process on each host, with all its cores."""

from __future__ import annotations

import json
import sys

from planner.peers._base import SCRIPTS, Peer, PeerSetup, PeerStart
from planner.plans.software import find_version

_MODEL = "keras_"


class TensorFlow(Peer):
    """The model is written anew in Keras, so that only some use cases have one."""

    modules = ("tensorflow",)
    script = "tensorflow_mirrored.py"
    is_one_process = True
    listens_everywhere = True

    @property
    def version(self) -> str | None:
        # One library, in two packages.
        return find_version("tensorflow_cpu") or find_version("tensorflow")

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        models = sorted(f.stem.removeprefix(_MODEL) for f in SCRIPTS.glob(f"{_MODEL}*.py"))
        if (name := setup.workload.use_case) not in models:
            return f"there is no Keras model of {name}: choose of {', '.join(models)}"
        return super().find_obstacle(setup)

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        workers = [
            f"{address}:{setup.ports[number]}"
            for address in setup.addresses
            for number in range(setup.processes)
        ]
        threads = () if setup.threads is None else ("--threads", str(setup.threads))
        command = [sys.executable, *self.training_command(setup, *threads)]
        if setup.world_size == 1:  # a server would wait for others, on all addresses
            return [PeerStart(command=command)]
        return [
            PeerStart(
                command=command,
                host=number // setup.processes,
                environment={
                    "TF_CONFIG": json.dumps(
                        {
                            "cluster": {"worker": workers},
                            "task": {"type": "worker", "index": number},
                        }
                    )
                },
            )
            for number in range(len(workers))
        ]
