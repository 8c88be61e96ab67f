"""Spark's TorchDistributor, which starts torchrun with DistributedDataParallel."""

from __future__ import annotations

from planner.peers._spark import SparkPeer


class SparkTorchDistributor(SparkPeer):
    """One process for each core: in the driver on one host, as tasks of Spark on several."""

    script = "spark_distributor.py"
    listens_everywhere = True  # for what its tasks write
