"""Spark's map and reduce: each step maps shares to gradients, and reduces them to their mean."""

from __future__ import annotations

from planner.peers._base import Peer, PeerSetup, PeerStart
from planner.peers._spark import find_spark_obstacle, spark_starts


class SparkMapReduce(Peer):
    """Averaging as Lerat, Mahmoudi and Mahmoudi (2022) do on Spark, once a step."""

    distribution = "pyspark"
    modules = ("pyspark",)
    script = "spark_map_reduce.py"

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        return super().find_obstacle(setup) or find_spark_obstacle()

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        options = ("--processes", str(setup.world_size))
        return spark_starts(setup, self.training_command(setup, *options))
