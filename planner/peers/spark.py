"""Spark's TorchDistributor, which starts torchrun with DistributedDataParallel."""

from __future__ import annotations

from planner.peers._base import Peer, PeerSetup, PeerStart
from planner.peers._spark import find_spark_obstacle, spark_starts


class SparkTorchDistributor(Peer):
    """One process for each core: in the driver on one host, as tasks of Spark on several."""

    distribution = "pyspark"
    modules = ("pyspark",)
    script = "spark_distributor.py"

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        return super().find_obstacle(setup) or find_spark_obstacle()

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        options = ("--processes", str(setup.world_size))
        return spark_starts(setup, self.training_command(setup, *options))
