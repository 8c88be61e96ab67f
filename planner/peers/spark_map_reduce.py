"""Spark's map and reduce: each step maps shares to gradients, and reduces them to their mean."""

from __future__ import annotations

from planner.peers._spark import SparkPeer


class SparkMapReduce(SparkPeer):
    """Averaging as Lerat, Mahmoudi and Mahmoudi (2022) do on Spark, once a step."""

    script = "spark_map_reduce.py"
