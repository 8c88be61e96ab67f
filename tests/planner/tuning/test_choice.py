"""Among plans that may be as fast as each other the simplest is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.plan import Plan
from planner.tuning.choice import complexity

PLAIN = Plan(strategy="threads", node_batch=32, threads_per_process=2)


@pytest.mark.parametrize(
    ("simpler", "other"),
    [
        (PLAIN, replace(PLAIN, fused_optimizer=True)),
        (PLAIN, replace(PLAIN, input="cache")),
        (PLAIN, replace(PLAIN, allocator="jemalloc")),
        (replace(PLAIN, input="cache", fused_optimizer=True), replace(PLAIN, compile=True)),
        (replace(PLAIN, replicas=2), replace(PLAIN, processes=2)),
        (replace(PLAIN, processes=8, compile=True), replace(PLAIN, precision="bf16")),
        (
            replace(PLAIN, options={"schedule": "gpipe"}),
            replace(PLAIN, options={"schedule": "gpipe", "cut": "paper"}),
        ),
    ],
)
def test_plan_with_less_to_understand_and_to_go_wrong_is_simpler(simpler, other):
    assert complexity(simpler) < complexity(other)
