"""Settings of a plan in a few characters."""

from __future__ import annotations

import pytest

from launch.plan import Plan
from planner.report.plan_line import describe_settings


def script(node_batch: int, **options: object) -> Plan:
    return Plan(strategy="script", node_batch=node_batch, options=options)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(strategy="sequential", node_batch=32), "1x1 batch 32"),
        (
            Plan(
                strategy="threads",
                node_batch=32,
                threads_per_process=4,
                replicas=2,
                loader_workers=2,
            ),
            "2x2 batch 32 2 loaders",
        ),
        (
            Plan(
                strategy="pipeline",
                node_batch=64,
                processes=2,
                micro_batches=8,
                precision="bf16",
                loader_workers=1,
                allocator="retain",
            ),
            "2x1 batch 64 in 8 1 loader retain bf16",
        ),
        (
            Plan(
                strategy="hybrid",
                node_batch=64,
                processes=4,
                replicas=2,
                input="cache",
                fused_optimizer=True,
                precision="bf16",
                compile=True,
                options={"schedule": "1f1b", "cut": "measured"},
            ),
            "4x1 in 2 replicas batch 64 cache fused bf16 compiled cut=measured schedule=1f1b",
        ),
        (
            Plan(
                strategy="gpu_data",
                node_batch=8,
                processes=2,
                devices=("cuda:0", "cuda:1"),
                input="device",
                cuda_graph=True,
            ),
            "2x1 batch 8 data on the GPU graph cuda:0,cuda:1",
        ),
        (
            Plan(
                strategy="script",
                node_batch=256,
                processes=2,
                loader_workers=1,
                allocator="retain",
                options={"batch": 64, "wait_policy": "active"},
            ),
            "2x1 batch=64 workers=1 retain wait_policy=active",
        ),
        (script(32, own_settings=True), "1x1 batch 32 as it is"),
        (
            script(1, whole_runs=True, step_regex="step .*"),
            "1x1 batch 1 whole runs --step-regex 'step .*'",
        ),
        (script(1, no_python=True, step_regex="step"), "1x1 batch 1 --no-python --step-regex step"),
    ],
)
def test_settings_are_said_in_a_few_characters(plan, said):
    assert describe_settings(plan) == said
