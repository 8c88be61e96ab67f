"""A search that is shown the time of a sample's worth finds the plan that is soonest at a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import sample_plan
from imagined_machines import node_of
from sample_plan import SOFTWARE

from launch.noise_scale.efficiency import efficiency
from launch.plan import Plan
from launch.reports import StepDone
from launch.workload import Workload
from planner.plans.objective import Objective
from planner.store import Store
from planner.time_to_loss.ranking import WeighedTrials, in_real_time, start_by_worth
from planner.trials.reports import ignore
from planner.trials.result import Role
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest

NODE = node_of(2)
CASE = replace(sample_plan.CASE, train_samples=60_000)
SAMPLE_S = 0.002


@dataclass(frozen=True)
class Course:
    """What is trained: how noisy its gradients are, and the fixed part of a step."""

    scale: float
    fixed_s: float

    def worth(self, batch: int, scaling: str) -> float:
        return efficiency(self.scale, batch, CASE.default_batch, scaling)

    def step_s(self, batch: int, threads: int = 2) -> float:
        return self.fixed_s + SAMPLE_S * batch / threads

    def time_to_loss(self, batch: int, scaling: str) -> float:
        return self.step_s(batch) / batch / self.worth(batch, scaling)


LATE = Course(scale=150.0, fixed_s=0.2)
"""Ten times the batch is twice as fast a sample, and worth less."""

EARLY = Course(scale=16.0, fixed_s=0.0005)
"""A sample of a small batch is worth most, and takes hardly longer."""


class Machine:
    """Makes steps in the time that they take, by its own clock."""

    def __init__(self, course: Course = LATE) -> None:
        self.now_s = 0.0
        self._course = course

    def step_s(self, plan: Plan) -> float:
        return self._course.step_s(plan.node_batch, plan.threads)

    def start(self, plan: Plan) -> RunningPlan:
        self.now_s += 0.5
        return RunningPlan(self, plan)


class RunningPlan:
    peak_memory_bytes = 10**8
    compile_s = None
    disturbance = None

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self._machine, self._plan, self._made = machine, plan, 0

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepDone]:
        made = []
        for _ in range(count):
            time_s = self._machine.step_s(self._plan) * (1 + 0.002 * (self._made % 3 - 1))
            self._machine.now_s += time_s
            self._made += 1
            samples = self._plan.node_batch
            made.append(StepDone(step=0, epoch=0, time_s=time_s, samples=samples, loss=1.0))
        return made

    def close(self) -> None:
        pass


def tune(store: Store, scaling: str, course: Course = LATE) -> TuneOutcome:
    machine = Machine(course)
    request = TuneRequest(
        workload=Workload(use_case="simplebig"),
        budget_s=90,
        strategies=("sequential", "threads"),
        lr_scaling=scaling,
        objective="time-to-loss",
    )

    def worth(batch: int) -> float:
        return course.worth(batch, scaling)

    findings = Findings(request, CASE, NODE, SOFTWARE, WeighedTrials(store.studies, worth), worth)
    tuner = Tuner(
        findings, start_by_worth(machine.start, worth), ignore, clock=lambda: machine.now_s
    )
    interrupted = tuner.search()
    chosen = findings.choose(findings.candidates()).plan
    objective = Objective(
        name="time-to-loss",
        noise_scale=course.scale,
        noise_low=course.scale,
        noise_high=course.scale,
        base_batch=CASE.default_batch,
        steps=100,
    )
    return conclude(
        in_real_time(findings, worth),
        store.plans,
        interrupted=interrupted,
        chosen=chosen,
        objective=objective,
    )


@pytest.mark.parametrize(
    ("course", "scaling"),
    [(LATE, "linear"), (LATE, "sqrt"), (EARLY, "none"), (EARLY, "linear")],
)
def test_batch_is_the_one_that_is_soonest_at_a_loss(course, scaling, store):
    """With most samples a second it were the largest."""
    found = tune(store, scaling, course).plan
    batches = (4, 8, 16, 32, 64, 128, 256)
    best = min(batches, key=lambda batch: course.time_to_loss(batch, scaling))
    assert (best < CASE.default_batch) == (course is EARLY and scaling != "linear")
    soonest = course.time_to_loss(best, scaling)
    assert course.time_to_loss(found.plan.node_batch, scaling) < 1.02 * soonest
    assert found.plan.lr_scaling == scaling
    assert found.objective.noise_scale == course.scale
    assert store.plans.get(found.id) == found


def test_rates_and_trials_are_stored_as_they_were(store):
    outcome = tune(store, "linear")
    machine = Machine()
    plan = outcome.plan.plan
    rate = plan.node_batch / machine.step_s(plan)
    assert outcome.plan.throughput_samples_per_s.median == pytest.approx(rate, rel=0.01)
    for trial in store.studies.all_trials():
        known, own = trial.result.measurement, machine.step_s(trial.result.plan)
        assert known.median_s == pytest.approx(own, rel=0.01)
    defaults = next(one for one in outcome.plan.comparisons if one.name == "defaults")
    theirs = defaults.plan.node_batch / machine.step_s(defaults.plan)
    assert outcome.plan.speedup.median == pytest.approx(rate / theirs, rel=0.01)


def test_second_search_goes_on_with_the_times_of_the_first(store):
    first = tune(store, "linear")
    again = tune(store, "linear")
    # All that decides on the time of a step here; other settings are equally good.
    assert again.plan.plan.node_batch == first.plan.plan.node_batch
    assert again.plan.plan.threads == first.plan.plan.threads
    assert any(trial.role is Role.FINAL for trial in again.trials)
    same = [t for t in again.trials if t.plan == replace(first.plan.plan, lr_scaling="none")]
    times = [trial.measurement.median_s for trial in same]
    assert max(times) == pytest.approx(min(times), rel=0.01)
