"""Small plans for the nodes of a job."""

from __future__ import annotations

from dataclasses import replace

from launch.plan import Plan

ALONE = Plan(strategy="sequential", node_batch=3)


PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)


TURNED = replace(PAIR, memory_format="channels_last", micro_batches=2, node_batch=6)


THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=4)


PIPELINE = Plan(strategy="pipeline", processes=2, node_batch=6, micro_batches=2)


HYBRID = Plan(strategy="hybrid", processes=4, replicas=2, node_batch=8, micro_batches=2)


REDUCED = replace(HYBRID, options={"average": "all_reduce"})


DDP = Plan(strategy="gpu_data", processes=2, replicas=2, node_batch=4)
