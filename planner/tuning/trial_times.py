"""Time limits of a plan in a race: long enough to get warm, short enough for the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from launch.plan import Plan
from planner.tuning.entrant import Entrant, steps_of_turn, warmup_steps
from planner.tuning.findings import Findings
from planner.tuning.tune_request import LARGEST_SHARE

_START_S = 1.0
_OVERHEADS = 3
"""How many times as long as others a plan may take to start."""

_TURNS = 2
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
        self._known: tuple[object, _Known] | None = None
        """What is known, behind what it was gathered from."""

    def usual_s(self) -> float:
        """Give the time limit of a plan of which nothing is known."""
        return min(max(self._budget_s / 6, _LEAST_LIMIT_S), _MOST_USUAL_S)

    def step_s(self, plan: Plan) -> float:
        """Estimate the time of a step: measured, else as of the best plan on the same devices.

        A plan on fewer threads than the best one takes so much longer. Of GPUs nothing is known
        before a plan on one has been measured.
        """
        known = self._known_now()
        if (measured_s := known.step_s.get(plan)) is not None:
            return measured_s
        if "cpu" not in plan.devices:
            return (known.gpu_s or 0.0) * plan.node_batch
        return known.cpu_s * plan.node_batch * max(1.0, known.threads / plan.threads)

    def start_s(self, plan: Plan) -> float:
        """Estimate the time that a plan takes to start and to get warm."""
        return self._known_now().overhead_s + warmup_steps(plan) * self.step_s(plan)

    def turn_s(self, plan: Plan, *, is_apart: bool) -> float:
        """Estimate the time of a turn, which begins with a start where plans are apart.

        Its steps are counted by the time that the search sees.
        """
        step_s = self.step_s(plan)
        steps = steps_of_turn(step_s / self._findings.worth(plan.node_batch))
        return steps * step_s + (self.start_s(plan) if is_apart else 0.0)

    def limit_s(self, plan: Plan) -> float:
        """Give the time in which a plan must be warm."""
        compiling_s = _COMPILING_S if plan.compile else 0.0
        warmup_s = max(_LEAST_LIMIT_S, _HOPELESS * warmup_steps(plan) * self.step_s(plan))
        return warmup_s + _OVERHEADS * self._known_now().overhead_s + compiling_s

    def min_s(self, plan: Plan, *, is_apart: bool = False) -> float:
        """Give the least time that shows whether a plan is as fast as the best one.

        Args:
            plan: The plan.
            is_apart: Whether each turn, of both of them, begins with a start.
        """
        if not self.step_s(plan):
            return 0.0
        return self.start_s(plan) + 2 * _TURNS * self.turn_s(plan, is_apart=is_apart)

    def is_affordable(self, plan: Plan) -> bool:
        """Tell whether a plan can be judged in its part of the budget."""
        request = self._findings.request
        least = request.batch_size or self._findings.case.default_batch
        if plan.node_batch <= least:
            return True
        return self.min_s(plan) <= LARGEST_SHARE * self._budget_s

    def _known_now(self) -> _Known:
        """Give what is known now; gathered once, for a search asks for thousands of plans."""
        racing = tuple((id(e), len(e.turns_s), len(e.warmup_s)) for e in self._racing)
        seen = len(self._findings.results), racing
        if self._known is None or self._known[0] != seen:
            self._known = seen, self._gather()
        return self._known[1]

    def _gather(self) -> _Known:
        findings = self._findings
        timed = [(r, r.measurement) for r in findings.results if r.measurement]
        seen = [(result.plan, measured.median_s) for result, measured in timed]
        seen += [(e.plan, e.step_s) for e in self._racing if e.step_s]
        known = [(plan, step_s * findings.worth(plan.node_batch)) for plan, step_s in seen]
        on_cpus = [(step_s / p.node_batch, p.threads) for p, step_s in known if "cpu" in p.devices]
        on_gpus = [step_s / p.node_batch for p, step_s in known if "cpu" not in p.devices]
        unknown = findings.case.sample_s, findings.node.cpu.usable_cores
        cpu_s, threads = min(on_cpus, default=unknown)
        starts_s: dict[tuple[Plan, int | None], float] = {}
        for result, measured in timed:
            if not result.outcome.has_times:  # one that got stuck waited, and did not start
                continue
            # What was kept before its end is kept twice: with its start, and with the turns since.
            key = result.plan, next(iter(measured.rounds), None)
            stepping_s = measured.total_s * findings.worth(result.plan.node_batch)
            start_s = (result.elapsed_s - stepping_s) / measured.starts
            starts_s[key] = starts_s.get(key, 0.0) + start_s
        return _Known(
            step_s=dict(known),
            cpu_s=cpu_s,
            threads=threads,
            gpu_s=min(on_gpus, default=None),
            overhead_s=max(_START_S, median(starts_s.values())) if starts_s else _START_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What trials have shown until now."""

    step_s: Mapping[Plan, float]
    """Last known time of a step, by plan."""

    cpu_s: float
    """Time per sample of the fastest plan on CPUs; of the use case before there is one."""

    threads: int
    """Its threads."""

    gpu_s: float | None
    """Time per sample of the fastest plan on GPUs."""

    overhead_s: float
    """Time that the processes of a plan took to start, data set included."""
