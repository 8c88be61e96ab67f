"""What is said first of a search that gained nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worth_cases import OBJECTIVE

from launch.plan import Plan
from launch.workload import Workload
from planner.errors import NoPlanError
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import rank_by_rate
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.tune_request import TuneRequest
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement
from tests.planner.tuning.recorded_search import CASE, DEFAULTS, NODE

BASELINE = Plan(strategy="sequential", node_batch=32)
OTHER = Plan(strategy="pipeline", node_batch=32, processes=2)


@pytest.fixture
def concluded(store):
    """Conclude from a race of PyTorch's defaults, a second per step, and another plan."""

    def do(step_s: float, plan: Plan = OTHER, **limits):
        request = TuneRequest(workload=Workload(use_case="simplebig"), **limits)
        findings = Findings(request, CASE, NODE, {}, store.studies)
        for role, tried, time_s in (
            (Role.BASELINE, BASELINE, 1.9),
            (Role.DEFAULTS, DEFAULTS, 1.0),
            (Role.SEARCH, plan, step_s),
            (Role.FINAL, plan, step_s),
        ):
            times_s = {number: time_s * (1 + 0.001 * (number % 3)) for number in range(12)}
            found = timed(tried, role, times_s)
            measured = replace(found.measurement, warmup_s=(time_s,), starts=2)
            findings.add(replace(found, measurement=measured, elapsed_s=13 * time_s))
        return conclude(findings, store.plans)

    return do


def test_strategy_that_ends_slower_than_the_defaults_says_so_first(concluded):
    outcome = concluded(2.0, strategies=("pipeline",))
    assert outcome.plan.plan == OTHER
    assert outcome.plan.speedup.median == pytest.approx(0.5, rel=0.01)
    first = outcome.warnings[0]
    assert first.startswith("the plan found is slower than PyTorch's defaults, 0.50")
    assert first.endswith(" times as fast: leave out --strategies")


def test_batch_that_ends_slower_than_the_defaults_says_so_first(concluded):
    outcome = concluded(2.0, replace(OTHER, node_batch=16), batch_size=16)
    assert outcome.plan.speedup.median == pytest.approx(0.25, rel=0.01)
    assert outcome.warnings[0].endswith(" times as fast: leave out --batch-size")


def test_search_that_gained_something_has_nothing_to_say_first(concluded):
    assert concluded(0.5, strategies=("pipeline",)).warnings == ()


@pytest.fixture
def findings(store):
    """Findings of a search that has not begun."""
    request = TuneRequest(workload=Workload(use_case="simplebig"))
    return Findings(request, CASE, NODE, {}, store.studies)


def timed(
    plan: Plan,
    role: Role,
    turns_s: dict[int, float],
    *,
    drift: float = 1.0,
    input_share: float | None = None,
) -> TrialResult:
    return TrialResult(
        plan=plan,
        role=role,
        outcome=Outcome.OK,
        measurement=Measurement(
            samples_s=tuple(turns_s.values()),
            rounds=tuple(turns_s),
            drift=drift,
            input_share=input_share,
        ),
        elapsed_s=10.0,
    )


def test_final_of_two_rounds_claims_what_the_noise_of_the_search_allows(findings, store):
    """Two pairs alone would say 0.2 to 16 times as fast."""
    off = [1.0, 1.04, 0.97, 1.03, 0.98, 1.01]
    for number in range(6):
        tried = replace(OTHER, node_batch=40 + number)
        rounds = range(4 * number, 4 * number + 4)
        findings.add(timed(tried, Role.SEARCH, {n: off[n % 6] for n in rounds}))
        findings.add(timed(BASELINE, Role.BASELINE, dict.fromkeys(range(4 * number + 4), 1.5)))
    findings.add(timed(OTHER, Role.FINAL, {100: 0.50, 101: 0.56}))
    findings.add(timed(DEFAULTS, Role.DEFAULTS, {100: 1.04, 101: 1.0}))
    speedup = conclude(findings, store.plans).plan.speedup
    assert speedup.count == 2
    assert 1.6 < speedup.low < 1.8
    assert 2.0 < speedup.high < 2.3


def test_plan_that_was_timed_again_is_not_the_first_to_be_forgotten(findings, monkeypatch):
    """The story: with 300 plans in a study searches knew neither PyTorch's defaults nor the best
    plan, for these were the first that had been tried."""
    monkeypatch.setattr("planner.tuning.findings._MOST_HISTORY", 2)
    first, second, third = (replace(OTHER, node_batch=batch) for batch in (16, 32, 64))
    for number, plan in enumerate((first, second, third, first)):
        findings.add(timed(plan, Role.SEARCH, {number: 1.0}))
    assert [result.plan for result in findings.history()] == [first, third]


def test_plans_are_ranked_by_turns_side_by_side_whenever_they_were_stored(findings):
    """The machine was slow when the faster plan ran, which was not known of the rounds before."""
    slowness = {1: 1.0, 2: 1.0, 3: 1.6, 4: 1.6, 5: 1.6, 6: 1.6}
    late, early = replace(OTHER, node_batch=64), replace(OTHER, node_batch=16)
    early_s = {n: 0.5 * 1.06 * slowness[n] for n in (1, 2)}
    late_s = {n: 2 * 0.95 * slowness[n] for n in (5, 6)}
    findings.add(timed(early, Role.SEARCH, early_s))
    findings.add(timed(late, Role.SEARCH, late_s, drift=1.3))
    findings.add(timed(DEFAULTS, Role.DEFAULTS, slowness))
    assert [one.plan for one in rank_by_rate(findings.candidates())] == [late, DEFAULTS, early]


def test_no_rate_is_claimed_that_no_turn_has_shown(findings, store):
    """Others slow the defaults tenfold in most rounds, and the plan beside them not at all."""
    findings.add(timed(DEFAULTS, Role.DEFAULTS, {1: 1.0, 2: 1.0, 3: 1.0, 4: 10, 5: 10, 6: 10}))
    findings.add(timed(OTHER, Role.FINAL, {4: 0.80, 5: 0.81, 6: 0.79}))
    stored = conclude(findings, store.plans).plan
    assert stored.plan == OTHER
    assert stored.throughput_samples_per_s.median == pytest.approx(32 / 0.80)


def test_rate_beside_other_processes_may_be_higher_by_what_they_may_have_taken(findings, store):
    trial, busy = timed(OTHER, Role.FINAL, {1: 1.0, 2: 1.0}), Disturbance(others_cores=0.5)
    findings.add(trial)
    quiet = conclude(findings, store.plans).plan.throughput_samples_per_s
    turns = [DisturbedTurn(round=n, disturbance=busy, was_repeated=False) for n in (1, 2)]
    measured = replace(trial.measurement, disturbed=tuple(turns))
    findings.add(replace(trial, measurement=measured))
    found = conclude(findings, store.plans).plan.throughput_samples_per_s
    assert (found.median, found.low) == (quiet.median, quiet.low)
    assert (
        found.high / quiet.high == pytest.approx(busy.most_slowed) == pytest.approx(1.90, abs=0.01)
    )


def test_turns_of_the_search_do_not_decide_between_finalists(findings, store):
    """A plan that the search had flattered is slower in the final, turn by turn."""
    flattered, other = replace(OTHER, node_batch=64), replace(OTHER, node_batch=16)
    findings.add(timed(DEFAULTS, Role.DEFAULTS, dict.fromkeys(range(1, 5), 1.0)))
    findings.add(timed(flattered, Role.SEARCH, dict.fromkeys(range(1, 5), 0.9)))
    findings.add(timed(other, Role.SEARCH, dict.fromkeys(range(1, 5), 0.25)))
    finals_s = {number: 1 + 0.01 * (number % 2) for number in range(10, 16)}
    findings.add(timed(flattered, Role.FINAL, finals_s))
    findings.add(timed(other, Role.FINAL, {n: 0.24 * s for n, s in finals_s.items()}))
    findings.add(timed(DEFAULTS, Role.DEFAULTS, dict.fromkeys(finals_s, 1.0)))
    assert conclude(findings, store.plans).plan.plan == other


def test_finalist_that_had_no_time_has_not_lost_and_is_said_not_to_be_measured(findings, store):
    """The story: the budget ended before its first turn, and it was never a candidate again."""
    late, found = replace(OTHER, node_batch=64), timed(OTHER, Role.FINAL, {10: 0.5, 11: 0.5})
    seen = timed(late, Role.SEARCH, {1: 0.9, 2: 0.9})
    cut = TrialResult(plan=late, role=Role.FINAL, outcome=Outcome.NO_TIME, elapsed_s=9.0)
    for result in (seen, found, timed(DEFAULTS, Role.DEFAULTS, {10: 1.0, 11: 1.0}), cut):
        findings.add(result)
    outcome = conclude(findings, store.plans)
    assert (outcome.plan.plan, outcome.lost_in_turns) == (OTHER, 0)
    said = "1 plan had no turn in the final and may be faster: raise --budget"
    assert outcome.warnings == (said,)
    assert late in {candidate.plan for candidate in findings.candidates()}
    assert [r.role for r in findings.history() if r.plan == late] == [Role.SEARCH]


def test_trials_are_kept_without_a_plan_where_they_alone_are_wanted(concluded, store):
    found = concluded(0.5, keeps_plan=False)
    assert (found.plan.plan, found.plan.id) == (OTHER, None)
    assert store.plans.find() == []


def test_plans_that_looked_faster_and_lost_in_turns_are_counted(findings, store):
    """A line said 580 samples a second and best, and the best plan had 235 in the end."""
    flattered, passed = replace(OTHER, node_batch=64), replace(OTHER, node_batch=128)
    findings.add(timed(flattered, Role.SEARCH, {0: 0.2, 1: 0.2}))
    findings.add(timed(passed, Role.SEARCH, {10: 5.0, 11: 5.0}))
    # Beside others it was told with the rate that it had, which was not above the best one's.
    busy = DisturbedTurn(round=20, disturbance=Disturbance(others_cores=0.9), was_repeated=False)
    slowed = timed(replace(OTHER, node_batch=256), Role.SEARCH, {20: 5.0}, drift=10.0)
    findings.add(replace(slowed, measurement=replace(slowed.measurement, disturbed=(busy,))))
    final = ((OTHER, 0.5), (flattered, 1.5), (slowed.plan, 6.0), (DEFAULTS, 1.0))
    for plan, step_s in final:
        role = Role.DEFAULTS if plan == DEFAULTS else Role.FINAL
        findings.add(timed(plan, role, {100: step_s, 101: step_s}))
    outcome = conclude(findings, store.plans)
    # Rates by the worth of samples cannot be held against those of the best plan's steps.
    by_worth = conclude(findings, store.plans, objective=OBJECTIVE)
    assert outcome.plan.plan == by_worth.plan.plan == OTHER
    assert (outcome.lost_in_turns, by_worth.lost_in_turns) == (1, 0)


def test_plan_in_fp32_is_named_for_what_the_best_one_was_chosen_for(store):
    """The story: of a search by time to a loss it had most samples a second, in a batch that makes
    them worth little, and its learning rate was not scaled."""
    request = TuneRequest(
        workload=Workload(use_case="simplebig"),
        precision="auto",
        objective=OBJECTIVE.name,
        lr_scaling="linear",
    )
    best, larger = replace(OTHER, precision="bf16"), replace(OTHER, node_batch=128)
    findings = Findings(request, CASE, NODE, {}, store.studies)
    for plan, step_s in ((best, 1.0), (OTHER, 1.5), (larger, 2.0)):
        findings.add(timed(plan, Role.FINAL, {1: step_s, 2: step_s}))
    outcome = conclude(findings, store.plans, chosen=best, objective=OBJECTIVE)
    assert outcome.plan.plan == replace(best, lr_scaling="linear")
    assert outcome.exact.plan == replace(OTHER, lr_scaling="linear")
    assert outcome.exact.objective == outcome.plan.objective == OBJECTIVE


def test_no_plan_is_explained_by_a_trial_that_could_have_given_one(findings, store):
    """The story: "no trial of 3 succeeded, the last one: ok, None"."""
    late = {"outcome": Outcome.TIME_LIMIT, "reason": "no turn", "elapsed_s": 1.0}
    findings.add(timed(replace(OTHER, node_batch=16), Role.LOOK, {0: 0.2, 1: 0.2}))
    findings.add(TrialResult(plan=OTHER, role=Role.FINAL, **late))
    findings.add(timed(replace(OTHER, node_batch=8), Role.SHARE, {9: 0.1, 10: 0.1}))
    reason = "no trial of 1 succeeded, the last one: time limit, no turn: raise --budget"
    with pytest.raises(NoPlanError, match=reason):
        conclude(findings, store.plans)


@pytest.mark.parametrize("role", [Role.BASELINE, Role.OWN_BATCH, Role.FINAL])
def test_run_on_one_core_is_compared_with_whatever_its_turns_were_for(findings, store, role):
    """It is what a slower finalist is at the own batch, and was said not to be measured."""
    turns_s = {number: 1 + 0.01 * (number % 2) for number in range(8)}
    third = replace(OTHER, node_batch=64)
    for plan, its, by in (
        (DEFAULTS, Role.DEFAULTS, 1.0),
        (OTHER, Role.FINAL, 0.5),
        (third, Role.FINAL, 1.2),
        (BASELINE, role, 1.9),
    ):
        findings.add(timed(plan, its, {n: by * time_s for n, time_s in turns_s.items()}))
    outcome = conclude(findings, store.plans)
    (one_core,) = (one for one in outcome.plan.comparisons if one.name == "one_core")
    assert (one_core.plan, outcome.one_core_unknown) == (BASELINE, None)
    assert one_core.speedup.median == pytest.approx(3.8)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.05, []), (0.4, ["the best plan waits for its input for 40 % of the time"])],
)
def test_plan_that_waits_for_its_input_says_so(findings, store, share, said):
    turns_s = {number: 1 + 0.01 * (number % 2) for number in range(8)}
    half_s = {number: 0.5 * time_s for number, time_s in turns_s.items()}
    findings.add(timed(DEFAULTS, Role.DEFAULTS, turns_s, input_share=0.9))
    findings.add(timed(OTHER, Role.FINAL, half_s, input_share=share))
    warnings = conclude(findings, store.plans).warnings
    assert [warning.partition(":")[0] for warning in warnings] == said
