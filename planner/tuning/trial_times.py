"""Time limits of a plan in a race: long enough to get warm, short enough for the budget."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from launch.plan import Plan
from planner.tuning.findings import Findings
from planner.tuning.race import Entrant, steps_of_turn
from planner.tuning.tune_request import LARGEST_SHARE

_START_S = 1.0
_OVERHEADS = 3
"""Times that a plan may take to start, of what others took."""

_WARMUP_STEPS, _TURNS = 2, 2
_HOPELESS = 6.0
"""How many times as long as the best plan a challenger may take, before it is ended while it still
warms up."""

_COMPILING_S = 90.0
"""Time that a plan is given beyond its own to compile: AlexNet takes most of a minute."""

_LEAST_LIMIT_S, _MOST_USUAL_S = 10.0, 60.0


class TrialTimes:
    """Times that plans of one search need, from what it has found.

    Args:
        findings: Of the search.
        racing: The plans that run now.
    """

    def __init__(self, findings: Findings, racing: Sequence[Entrant] = ()) -> None:
        self._findings = findings
        self._racing = racing
        self._budget_s = findings.request.budget_s

    def usual_s(self) -> float:
        """Give the time limit of a plan of which nothing is known."""
        return min(max(self._budget_s / 6, _LEAST_LIMIT_S), _MOST_USUAL_S)

    def step_s(self, plan: Plan) -> float:
        """Estimate the time of a step: measured, else as if the plan were as fast as the best one.

        A plan on fewer threads than the best one takes so much longer. Of GPUs nothing is known
        before a plan on one has been measured.
        """
        findings = self._findings
        known = [(r.plan, r.measurement.median_s) for r in findings.results if r.measurement]
        known += [(e.plan, e.step_s) for e in self._racing if e.step_s]
        if measured := [step_s for other, step_s in known if other == plan]:
            return measured[-1]
        on_gpu = "cpu" not in plan.devices
        if on_gpu and all("cpu" in other.devices for other, _ in known):
            return 0.0
        if not known:
            time_s, threads = findings.case.sample_s, findings.node.cpu.usable_cores
        else:
            fastest, step_s = min(known, key=lambda pair: pair[1] / pair[0].node_batch)
            time_s, threads = step_s / fastest.node_batch, fastest.threads
        return time_s * plan.node_batch * (1.0 if on_gpu else max(1.0, threads / plan.threads))

    def start_s(self, plan: Plan) -> float:
        """Estimate the time that a plan takes to start and to get warm."""
        steps = _WARMUP_STEPS + 2 * plan.loader_workers
        return self._overhead_s() + steps * self.step_s(plan)

    def turn_s(self, plan: Plan) -> float:
        """Estimate the time of a turn."""
        step_s = self.step_s(plan)
        return step_s * steps_of_turn(step_s) if step_s else 0.0

    def limit_s(self, plan: Plan) -> float:
        """Give the time in which a plan must be warm."""
        steps = _WARMUP_STEPS + 2 * plan.loader_workers
        compiling_s = _COMPILING_S if plan.compile else 0.0
        warmup_s = max(_LEAST_LIMIT_S, _HOPELESS * steps * self.step_s(plan))
        return warmup_s + _OVERHEADS * self._overhead_s() + compiling_s

    def _overhead_s(self) -> float:
        """Give the time that a plan's processes took to start, data set included."""
        starts_s = [
            (r.elapsed_s - r.measurement.total_s) / r.measurement.starts
            for r in self._findings.results
            if r.measurement
        ]
        return max(_START_S, median(starts_s)) if starts_s else _START_S

    def min_s(self, plan: Plan) -> float:
        """Give the time in which a plan as fast as the best one can show it, beside that one."""
        if not self.step_s(plan):
            return 0.0
        return self.start_s(plan) + 2 * _TURNS * self.turn_s(plan)

    def is_affordable(self, plan: Plan) -> bool:
        """Tell whether a plan can be judged in its part of the budget."""
        request = self._findings.request
        least = request.batch_size or self._findings.case.default_batch
        if plan.node_batch <= least:
            return True
        return self.min_s(plan) <= LARGEST_SHARE * self._budget_s
