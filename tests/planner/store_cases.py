"""A study and its trials, for tests of the store."""

from __future__ import annotations

from launch.plan import Plan
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes.timing import Measurement

STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint="sha256:aa",
    precision="fp32",
    software={"torch": "2.15.0"},
    data="photos",
    seed=0,
)


def trial(mark, samples=10):
    return TrialResult(
        plan=Plan(strategy="sequential", node_batch=32),
        role=Role.SEARCH,
        outcome=Outcome.OK,
        measurement=Measurement(samples_s=(1.5,) * samples),
        elapsed_s=1.0,
        parameters={"mark": mark},
    )
