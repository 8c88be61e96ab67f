"""The project's own search, races and final, on an imagined machine by a clock that is wound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from _worlds import World

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.reports import StepDone
from launch.workload import Workload
from planner.plans.stored_plan import StoredPlan
from planner.trials.comparison import START_DEVIATION
from planner.trials.contender import TrialFailedError
from planner.trials.reports import ignore
from planner.trials.result import Outcome, TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.disturbance import Disturbance
from probes.timing import Interval

_SWITCH_S = 0.01
_EPOCHS = 10_000
"""So many that compiling costs nothing, as in the truth that regret refers to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWorld:
    """How a search of an imagined machine ended."""

    chosen: Plan
    tried: tuple[Plan, ...]
    """Plans that had turns."""

    ended_s: float

    speedup: Interval | None
    """Over PyTorch's defaults, as it is claimed."""


def tune(
    world: World, disturbance: Callable[[float, float], float], seed: int, budget_s: float
) -> TunedWorld:
    """Search an imagined machine as ``ddlplan tune`` does."""
    machine = _Machine(world, disturbance, seed)
    request = TuneRequest(
        workload=Workload(use_case="imagined", seed=seed), budget_s=budget_s, epochs=_EPOCHS
    )
    findings = Findings(request, _described(world), world.node, {}, machine)
    Tuner(findings, machine.start, ignore, clock=machine.clock).search()
    outcome = conclude(findings, machine)
    return TunedWorld(
        chosen=outcome.plan.plan,
        tried=tuple(r.plan for r in findings.results if r.outcome.has_times and r.measurement),
        ended_s=machine.now_s,
        speedup=outcome.plan.speedup,
    )


def _described(world: World) -> CaseFacts:
    """Give what ``tune`` would have found out before its first trial."""
    plan = Plan(strategy="sequential", node_batch=world.case.default_batch)
    sample_s = world.sample_s(plan) / world.machine.cores
    return replace(world.case, sample_s=sample_s, calls_s=world.call_s)


@dataclass(slots=True)
class _Machine:
    """A machine and a store: it runs plans, and keeps trials in memory."""

    world: World
    disturbance: Callable[[float, float], float]
    seed: int
    now_s: float = 0.0
    running: dict[int, Plan] = field(default_factory=dict)
    compiled: set[Plan] = field(default_factory=set)
    draw: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng((self.seed, 5))

    def clock(self) -> float:
        """Give the time."""
        return self.now_s

    def start(self, plan: Plan) -> _Contender:
        """Start a plan beside those that run."""
        self.now_s += self.world.start_s(plan)
        compile_s = None
        if plan.compile:
            compile_s = 1.0 if plan in self.compiled else self.world.compile_s
            self.compiled.add(plan)
            self.now_s += compile_s
        contender = _Contender(self, plan, compile_s)
        self.running[id(contender)] = plan
        return contender

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Begin with nothing."""
        return EarlierTrials(study_id=1)

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Keep nothing: the findings do."""
        return AddedTrial(id=1, number=0)

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give none: nobody else searches."""
        return LaterTrials(newest=after)

    def save(self, stored: StoredPlan, *, ends_search: bool = False) -> int:
        """Keep nothing."""
        return 1

    def end_without_plan(self, study_id: int) -> None:
        """Do nothing."""


class _Contender:
    """A plan on the machine."""

    disturbance: Disturbance | None = None

    def __init__(self, machine: _Machine, plan: Plan, compile_s: float | None) -> None:
        self._machine = machine
        self._plan = plan
        off = math.exp(START_DEVIATION * machine.draw.normal())
        self._step_s = machine.world.sample_s(plan) * plan.node_batch * off
        self.compile_s = compile_s
        on_cpu = "cpu" in plan.devices
        self.peak_memory_bytes = machine.world.peak_bytes(plan) if on_cpu else None

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps."""
        machine = self._machine
        used = sum(machine.world.peak_bytes(p) for p in machine.running.values() if _on_cpu(p))
        if _on_cpu(self._plan) and used > machine.world.node.memory.usable_bytes:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "memory")
        end_s = machine.now_s + time_limit_s
        machine.now_s += _SWITCH_S
        steps = []
        for number in range(count):
            time_s = self._step_s * machine.disturbance(machine.now_s, self._step_s)
            if machine.now_s + time_s > end_s:
                machine.now_s = end_s
                raise TrialFailedError(Outcome.TIME_LIMIT, f"{number} of {count} steps")
            machine.now_s += time_s
            batch = self._plan.node_batch
            steps.append(StepDone(step=number, epoch=0, time_s=time_s, samples=batch, loss=1.0))
        return steps

    def close(self) -> None:
        """End it."""
        self._machine.running.pop(id(self), None)


def _on_cpu(plan: Plan) -> bool:
    return "cpu" in plan.devices
