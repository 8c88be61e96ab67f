"""Time limits of a trial: long enough to measure its plan, short enough for the budget."""

from __future__ import annotations

from launch.plan import Plan
from planner.search.plan_search import time_per_sample_s
from planner.tuning.findings import Findings
from planner.tuning.tune_request import LARGEST_SHARE

MIN_TRIAL_S, MAX_TRIAL_S = 10.0, 60.0
TRIALS_PER_BUDGET = 8
STEPS_TO_JUDGE = 5
_COMPILING_S = 90.0
"""Time that a trial is given beyond its own to compile: AlexNet takes most of a minute."""


class TrialTimes:
    """Time limits of the trials of one search, from what it has found.

    Args:
        findings: Of the search.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._budget_s = findings.request.budget_s

    def usual_s(self) -> float:
        """Give the time after which even a noisy trial has had its share of the budget."""
        return min(max(self._budget_s / TRIALS_PER_BUDGET, MIN_TRIAL_S), MAX_TRIAL_S)

    def limit_s(self, plan: Plan) -> float:
        """Give the time that a plan's trial may take."""
        compiling_s = _COMPILING_S if plan.compile else 0.0
        return max(self.usual_s(), 2 * self.min_s(plan)) + compiling_s

    def min_s(self, plan: Plan) -> float:
        """Give the time in which a plan as fast as the best one can show it.

        Where that is the baseline, each thread of the plan may be as fast as the baseline's one.
        Of GPUs nothing is known before a plan on one has been measured.
        """
        findings = self._findings
        if "cpu" not in plan.devices and not findings.has_gpu_result():
            return 0.0
        best, baseline = findings.best_time_s(), findings.baseline()
        threads = plan.threads if findings.has_only_baseline() else 1
        known_s = best.median if best else baseline and time_per_sample_s(baseline)
        return STEPS_TO_JUDGE * (known_s or 0.0) * plan.node_batch / threads

    def min_repeat_s(self, plan: Plan) -> float:
        """Give the time in which a plan that was measured shows its speed again, its start too."""
        tried = [r for r in self._findings.results if r.plan == plan]
        starts_s = [r.elapsed_s - r.measurement.total_s for r in tried if r.measurement]
        return self.min_s(plan) + max([0.0, *starts_s])

    def is_affordable(self, plan: Plan) -> bool:
        """Tell whether a plan on a GPU can be judged in time.

        Batches on CPUs are chosen so before.
        """
        request = self._findings.request
        least = request.batch_size or self._findings.case.default_batch
        if "cpu" in plan.devices or plan.node_batch <= least:
            return True
        return self.min_s(plan) <= LARGEST_SHARE * self._budget_s
