"""A search that is shown the time of a sample's worth finds the plan that is soonest at a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pytest
import sample_plan
from imagined_machines import node_of
from sample_plan import SOFTWARE
from worth_cases import OBJECTIVE

from launch.noise_scale.efficiency import efficiency
from launch.plan import Plan
from launch.workload import Workload
from planner.plans.stored_plan import StoredPlan
from planner.store import Store
from planner.time_to_loss.ranking import WeighedTrials, in_real_time, start_by_worth
from planner.trials.result import Role
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from tests.planner.tuning.recorded_search import Recorded

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


def sample_s(course: Course, plan: Plan) -> float:
    return course.step_s(plan.node_batch, plan.threads) / plan.node_batch


def tune(store: Store, scaling: str, course: Course = LATE) -> TuneOutcome:
    recorded = Recorded()
    recorded.sample_s = partial(sample_s, course)
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
    start = start_by_worth(recorded.start, worth)
    tuner = Tuner(findings, start, recorded.listen, clock=recorded.clock)
    interrupted = tuner.search()
    chosen = findings.choose(findings.candidates()).plan
    scale = dict.fromkeys(("noise_scale", "noise_low", "noise_high"), course.scale)
    return conclude(
        in_real_time(findings, worth),
        store.plans,
        interrupted=interrupted,
        chosen=chosen,
        objective=replace(OBJECTIVE, **scale),
    )


@pytest.mark.parametrize(
    ("course", "scaling"), [(LATE, "sqrt"), (EARLY, "none"), (EARLY, "linear")]
)
def test_batch_is_the_one_that_is_soonest_at_a_loss(course, scaling, store):
    """With most samples a second it were the largest."""
    assert_soonest(tune(store, scaling, course).plan, course, scaling, store)


def assert_soonest(found: StoredPlan, course: Course, scaling: str, store: Store) -> None:
    batches = (4, 8, 16, 32, 64, 128, 256)
    best = min(batches, key=lambda batch: course.time_to_loss(batch, scaling))
    assert (best < CASE.default_batch) == (course is EARLY and scaling != "linear")
    soonest = course.time_to_loss(best, scaling)
    assert course.time_to_loss(found.plan.node_batch, scaling) < 1.02 * soonest
    assert found.plan.lr_scaling == scaling
    assert found.objective.noise_scale == course.scale
    assert store.plans.get(found.id) == found


def test_rates_and_trials_are_stored_as_they_were_and_a_second_search_goes_on_from_them(store):
    first = tune(store, "linear")
    assert_soonest(first.plan, LATE, "linear", store)
    rate = 1 / sample_s(LATE, first.plan.plan)
    assert first.plan.throughput_samples_per_s.median == pytest.approx(rate, rel=0.01)
    timed = [one.result for one in store.studies.all_trials() if one.result.measurement]
    assert len(timed) > 5
    for result in timed:
        own_s = result.plan.node_batch * sample_s(LATE, result.plan)
        assert result.measurement.median_s == pytest.approx(own_s, rel=0.01)
    defaults = next(one for one in first.plan.comparisons if one.name == "defaults")
    gain = rate * sample_s(LATE, defaults.plan)
    assert first.plan.speedup.median == pytest.approx(gain, rel=0.01)
    again = tune(store, "linear")
    # All that decides on the time of a step here; other settings are equally good.
    assert again.plan.plan.node_batch == first.plan.plan.node_batch
    assert again.plan.plan.threads == first.plan.plan.threads
    assert any(trial.role is Role.FINAL for trial in again.trials)
    same = [t for t in again.trials if t.plan == replace(first.plan.plan, lr_scaling="none")]
    times = [trial.measurement.median_s for trial in same]
    assert max(times) == pytest.approx(min(times), rel=0.01)
