"""A stored plan with all of its evidence, and a use case, for tests of whatever takes one."""

from __future__ import annotations

from datetime import UTC, datetime

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.stored_plan import Baseline, StoredPlan
from probes.timing import Interval

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SOFTWARE = {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"}
FOUND = StoredPlan(
    use_case="simplebig",
    use_case_digest="sha256:cc",
    node="vm",
    fingerprint="sha256:aa",
    plan=Plan(
        strategy="processes", node_batch=128, processes=2, options={"wait_policy": "passive"}
    ),
    throughput_samples_per_s=Interval(median=42.8, low=42.1, high=43.3, count=24),
    speedup=Interval(median=2.02, low=1.97, high=2.06, count=24),
    baseline=Baseline(strategy="sequential", node_batch=32, throughput_samples_per_s=21.2),
    peak_memory_bytes=1234567890,
    step_time=steps_from_points(
        [
            StepPoint(node_batch=64, step_s=1.6, peak_memory_bytes=800_000_000),
            StepPoint(node_batch=128, step_s=3.0),
        ]
    ),
    gradient_bytes=228_000_000,
    begins_early=True,
    created_at=NOON,
    software=SOFTWARE,
)
CASE = CaseFacts(
    default_batch=32,
    train_samples=3200,
    validation_samples=100,
    parameter_count=1000,
    parameter_bytes=4000,
    max_stages=1,
    digest="sha256:1",
)
"""A use case of which little matters."""
