"""The search within its budget, on recorded times: a clock that the trials wind forward."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.reports import Noted, StepDone
from launch.strategies import strategy_names
from launch.workload import Workload
from planner.errors import NoPlanError
from planner.store import Store
from planner.trials.contender import TrialFailedError
from planner.trials.reports import TrialStarted
from planner.trials.result import Outcome, Role
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.disturbance import Disturbance
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory

CPU = Cpu(
    architecture="x86_64",
    logical_cores=2,
    usable_cores=2,
    core_ids=(0, 1),
    limits=(CoreLimit(source="test", cores=2),),
)
NODE = Hardware(node="n1", cpu=CPU, memory=Memory(total_bytes=2**33, usable_bytes=2**33))
CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:1",
)
SOFTWARE = {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"}
REQUEST = TuneRequest(
    workload=Workload(use_case="simplebig"), budget_s=180, strategies=tuple(strategy_names())
)


class Recorded:
    """Answers as a machine did whose times per sample are known, and winds the clock."""

    start_s = 0.5

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran: list[tuple[Role, Plan]] = []
        self.fail = lambda plan: None
        self.fail_final = lambda plan: None
        self.stop_after: int | None = None
        self.final_factor = 1.0
        self.drift = lambda now_s: 1.0
        self.compile_s = lambda plan: None
        self.peak_bytes = 10**8
        self.disturbance: Disturbance | None = None

    def clock(self) -> float:
        return self.now_s

    def listen(self, report, _host=None) -> None:
        if isinstance(report, TrialStarted):
            self.ran.append((report.role, report.plan))

    def sample_s(self, plan: Plan) -> float:
        time_s = 0.030 / plan.threads
        time_s *= 1 + 2 / plan.node_batch
        time_s *= 0.9 if plan.memory_format == "channels_last" else 1.0
        time_s *= 0.9 if plan.allocator == "retain" else 1.0
        return time_s * (1.05 if plan.loader_workers else 1.0)

    def start(self, plan: Plan) -> RecordedContender:
        if self.stop_after is not None and len(self.ran) > self.stop_after:
            raise KeyboardInterrupt
        self.now_s += self.start_s
        role = self.ran[-1][0] if self.ran else Role.SEARCH
        failed = self.fail(plan) or (self.fail_final(plan) if role is Role.FINAL else None)
        if failed is not None:
            raise TrialFailedError(failed, str(failed))
        return RecordedContender(self, plan, role)


class RecordedContender:
    """Makes the steps of a plan in recorded time."""

    def __init__(self, recorded: Recorded, plan: Plan, role: Role) -> None:
        self._recorded = recorded
        self._plan = plan
        self._factor = recorded.final_factor if role is Role.FINAL else 1.0
        self._made = 0
        self.peak_memory_bytes = recorded.peak_bytes
        self.compile_s = recorded.compile_s(plan)
        self.disturbance = recorded.disturbance

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepDone]:
        recorded, steps = self._recorded, []
        end_s = recorded.now_s + time_limit_s
        for _ in range(count):
            step_s = recorded.sample_s(self._plan) * self._plan.node_batch * self._factor
            step_s *= recorded.drift(recorded.now_s) * (1 + 0.002 * (self._made % 3 - 1))
            if recorded.now_s + step_s > end_s:
                recorded.now_s = end_s
                raise TrialFailedError(Outcome.TIME_LIMIT, "too long")
            recorded.now_s += step_s
            samples = self._plan.node_batch
            steps.append(
                StepDone(step=self._made, epoch=0, time_s=step_s, samples=samples, loss=1.0)
            )
            self._made += 1
        return steps

    def close(self) -> None:
        pass


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(str(tmp_path / "planner.db")) as opened:
        yield opened


class Search:
    """A search on recorded times, and what is concluded from it."""

    def __init__(self, store, recorded, request=REQUEST, case=CASE, node=NODE, **how) -> None:
        self.store = store
        self.findings = Findings(request, case, node, SOFTWARE, store.studies)
        self.notes: list[str] = []

        def listen(report, _host=None) -> None:
            recorded.listen(report)
            if isinstance(report, Noted):
                self.notes.append(report.message)

        self.tuner = Tuner(self.findings, recorded.start, listen, clock=recorded.clock, **how)

    def tune(self) -> TuneOutcome:
        return conclude(self.findings, self.store.plans, interrupted=self.tuner.search())


def tuner(
    store: Store, recorded: Recorded, request: TuneRequest = REQUEST, case: CaseFacts = CASE
) -> Search:
    return Search(store, recorded, request, case)


@dataclass(frozen=True)
class Searched:
    """A search that several tests look at; none changes it."""

    recorded: Recorded
    outcome: TuneOutcome
    store: Store

    def plans(self, role: Role) -> list[Plan]:
        return [plan for its, plan in self.recorded.ran if its is role]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], Searched]]:
    """Search with the usual request for as long as is said, once for each budget."""
    with ExitStack() as stores:

        @cache
        def search(budget_s: float) -> Searched:
            file = tmp_path_factory.mktemp("searched") / "planner.db"
            store, recorded = stores.enter_context(Store.open(str(file))), Recorded()
            outcome = tuner(store, recorded, replace(REQUEST, budget_s=budget_s)).tune()
            return Searched(recorded, outcome, store)

        yield search


@pytest.fixture
def usual(searched) -> Searched:
    return searched(REQUEST.budget_s)


def test_defaults_come_first_and_are_plain(usual):
    """What a user has without ddlplan: all cores, nothing set."""
    defaults = Plan(strategy="threads", node_batch=32, threads_per_process=2)
    assert usual.recorded.ran[0] == (Role.DEFAULTS, defaults)


def test_best_plan_is_compared_with_defaults_one_core_and_its_own_settings_at_the_usual_batch(
    usual,
):
    found, recorded = usual.outcome.plan, usual.recorded
    compared = {one.name: one for one in found.comparisons}
    assert compared["defaults"].plan == Plan(
        strategy="threads", node_batch=32, threads_per_process=2
    )
    assert compared["one_core"].plan == Plan(strategy="sequential", node_batch=32)
    assert compared["own_batch"].plan == replace(found.plan, node_batch=32)
    for one in compared.values():
        truth = recorded.sample_s(one.plan) / recorded.sample_s(found.plan)
        assert one.speedup.low <= truth <= one.speedup.high
        assert one.speedup.median == pytest.approx(truth, rel=0.01)
    assert found.speedup == compared["defaults"].speedup


def test_missing_comparison_at_the_own_batch_has_its_reason(store, recorded, usual):
    """The line was left out without a word."""
    assert (usual.outcome.own_batch_unknown, usual.outcome.one_core_unknown) == (None, None)
    recorded.fail = lambda _: Outcome.CRASH if recorded.ran[-1][0] is Role.OWN_BATCH else None
    found = tuner(store, recorded).tune()
    assert "own_batch" not in {one.name for one in found.plan.comparisons}
    assert found.own_batch_unknown == "its trial failed: crash"


def test_machine_that_slows_down_meanwhile_changes_no_comparison(store, recorded, usual):
    steady = usual.outcome.plan
    recorded.drift = lambda now_s: 1 + 0.3 * math.sin(now_s / 40)
    found = tuner(store, recorded).tune().plan
    truth = [recorded.sample_s(plan) for plan in (found.plan, steady.plan)]
    assert truth[0] == pytest.approx(truth[1], rel=0.02)
    assert found.speedup.median == pytest.approx(steady.speedup.median, rel=0.03)
    rate, known = found.throughput_samples_per_s, steady.throughput_samples_per_s
    assert rate.high / rate.low > 1.3 > known.high / known.low


def test_search_ends_within_its_budget(usual):
    assert 150 < usual.recorded.now_s <= 182


def test_disturbed_turns_of_the_defaults_are_repeated_within_the_budget(store, recorded):
    """On a busy machine they were repeated however little time there was."""
    recorded.sample_s = lambda plan: 0.3
    recorded.disturbance = Disturbance(others_cores=1.0)
    tuner(store, recorded, replace(REQUEST, budget_s=60)).tune()
    assert 45 < recorded.now_s <= 60


def test_best_plan_found_is_near_the_best_there_is(usual):
    possible = usual.recorded.sample_s(
        Plan(
            strategy="threads",
            node_batch=256,
            threads_per_process=2,
            memory_format="channels_last",
            allocator="retain",
        )
    )
    assert 1 / usual.outcome.plan.throughput_samples_per_s.median < 1.02 * possible


def test_no_plan_is_searched_twice(searched):
    plans = list(searched(900).plans(Role.SEARCH))
    assert len(set(plans)) == len(plans) > 15


def test_every_plan_fits_the_node(searched):
    assert all(plan.threads <= 2 for _, plan in searched(900).recorded.ran)


def test_finalists_are_measured_again(usual):
    assert usual.outcome.plan.plan in usual.plans(Role.FINAL)


def test_best_plan_is_measured_with_smaller_batches_too(usual):
    """What a node takes for a share is measured, not guessed."""
    found, recorded = usual.outcome.plan, usual.recorded
    batch = found.plan.node_batch
    smaller = {batch // 2, batch // 4}
    known = {point.node_batch for point in found.step_time.points}
    assert batch in known
    assert known & smaller
    shares = usual.plans(Role.SHARE)
    assert shares == [replace(found.plan, node_batch=plan.node_batch) for plan in shares]
    assert {plan.node_batch for plan in shares} <= smaller  # the search has shown the others
    time_s = found.step_time.step_time.at(batch // 3)
    expected = replace(found.plan, node_batch=batch // 3)
    assert time_s == pytest.approx(recorded.sample_s(expected) * (batch // 3), rel=0.01)
    assert usual.store.plans.get(found.id).step_time == found.step_time
    assert found.gradient_bytes == CASE.parameter_bytes
    assert found.begins_early is False  # nothing is said of its optimizer


def test_batch_of_the_best_plan_is_never_one_that_was_measured_for_shares(store, recorded):
    known = recorded.sample_s
    recorded.sample_s = lambda plan: known(plan) * (0.5 if plan.node_batch < 32 else 1.0)
    chosen = [tuner(store, recorded).tune().plan.plan for _ in range(2)]
    assert all(plan.node_batch >= 32 for plan in chosen)


def test_short_search_leaves_smaller_batches_out(store, recorded):
    recorded.sample_s = lambda plan: 0.3
    found = tuner(store, recorded, replace(REQUEST, budget_s=60)).tune().plan
    assert Role.SHARE not in {role for role, _ in recorded.ran}
    assert found.step_time.step_time.fixed_s == 0
    assert recorded.now_s <= 61


@pytest.mark.parametrize("best_factor", [1.0, 0.7])
@pytest.mark.parametrize("with_baseline", [False, True])
def test_run_on_one_core_is_in_the_final_however_slow_where_it_is_asked_for(
    store, recorded, with_baseline, best_factor
):
    def sample_s(plan):
        return 0.6 / plan.threads * (best_factor if plan.allocator == "retain" else 1.0)

    recorded.sample_s = sample_s
    request = replace(REQUEST, budget_s=400, with_baseline=with_baseline)
    outcome = tuner(store, recorded, request).tune()
    roles = {role for role, _ in recorded.ran}
    assert (Role.BASELINE in roles) is with_baseline
    unknown = None if with_baseline else "no time or memory was left for it: raise --budget"
    assert outcome.one_core_unknown == unknown
    if with_baseline:
        (one_core,) = (one for one in outcome.plan.comparisons if one.name == "one_core")
        assert one_core.speedup.median == pytest.approx(2.0 / best_factor, rel=0.02)
    assert recorded.now_s <= 403


def test_plan_that_may_be_as_fast_yields_to_the_simpler_one(store, recorded):
    recorded.sample_s = lambda plan: 0.01
    outcome = tuner(store, recorded).tune()
    assert outcome.plan.plan.processes == 1


def test_number_of_trials_can_be_limited(store, recorded):
    tuner(store, recorded, replace(REQUEST, trials=3)).tune()
    assert sum(role is Role.SEARCH for role, _ in recorded.ran) == 3


def test_search_computes_with_one_thread_where_plans_have_their_turns(store, recorded, monkeypatch):
    """Threads of OpenBLAS spin for a while after each product, on the cores of the next turn."""
    seen = set()

    def start(plan: Plan) -> RecordedContender:
        seen.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return Recorded.start(recorded, plan)

    monkeypatch.setattr(recorded, "start", start)
    with threadpool_limits(limits=2, user_api="blas"):
        Search(store, recorded, replace(REQUEST, trials=2)).tune()
    assert seen == {1}


def test_interrupted_search_keeps_what_had_its_turns(store, recorded):
    recorded.stop_after = 4
    outcome = tuner(store, recorded).tune()
    assert outcome.interrupted
    kept = [trial.result.plan for trial in store.studies.all_trials()]
    assert len(kept) >= 2
    assert set(kept) <= {plan for _, plan in recorded.ran}


def test_search_that_is_interrupted_in_its_first_trial_says_that_it_starts_again(store, recorded):
    said = []
    recorded.listen = lambda report, _host=None: said.append(report)
    recorded.stop_after = -1
    with pytest.raises(KeyboardInterrupt):
        tuner(store, recorded).tune()
    assert Noted(message="nothing was measured yet: the same command starts again") in said


def test_interrupted_search_goes_on_where_it_stopped(store, recorded):
    recorded.stop_after = 4
    tuner(store, recorded).tune()
    recorded.stop_after = None
    spent_s = recorded.now_s
    tuner(store, recorded).tune()

    assert recorded.now_s <= 182
    assert recorded.now_s > spent_s
    searched = [plan for role, plan in recorded.ran if role is Role.SEARCH]
    assert len(set(searched)) >= 5  # the best until then race again, and what had no turns


def test_finished_search_goes_on_with_a_new_budget(store, recorded):
    tuner(store, recorded).tune()
    first_s = recorded.now_s
    outcome = tuner(store, recorded).tune()
    assert recorded.now_s > first_s + 100
    assert len(outcome.trials) > outcome.new_trials


def test_known_node_confirms_its_plan_in_three_trials_and_says_how_to_search_on(store):
    """The story: what the first trials showed, at the machine's level of that day, put all that was
    stored in doubt, and 20 more plans were tried."""
    asked = replace(REQUEST, budget_s=300, strategies=("threads",))
    for seed in (500, 501):
        recorded, generator = Recorded(), random.Random(seed)
        usual_s, slowness = recorded.sample_s, 1.3 if seed == 501 else 1.0
        recorded.sample_s = lambda plan, usual_s=usual_s, by=slowness: by * usual_s(plan)
        recorded.drift = lambda now_s, of=generator: math.exp(of.gauss(0, 0.05))
        search = Search(store, recorded, asked)
        search.tune()
    ran = [role for role, _ in recorded.ran]
    assert 1 <= ran.count(Role.SEARCH) <= 2  # beside the defaults
    assert Role.FINAL in ran
    assert search.notes == [
        "no untried plan is expected to gain more than 1 %: the best plans so far are confirmed, "
        "and --fresh searches anew"
    ]


def test_finished_search_stays_finished_when_its_plan_is_removed(store, recorded):
    """The end of a search was told by the date of its plan: without it, there was no budget."""
    removed = tuner(store, recorded).tune().plan
    store.plans.remove(removed.id)
    assert tuner(store, recorded).tune().new_trials > 5


def test_search_that_found_no_plan_is_finished_too(store, recorded):
    recorded.fail = lambda plan: Outcome.CRASH
    for _ in range(2):
        with pytest.raises(NoPlanError):
            tuner(store, recorded, replace(REQUEST, trials=2)).tune()
    assert [role for role, _ in recorded.ran].count(Role.SEARCH) == 4


def test_each_search_is_compared_with_defaults_of_its_own(store, recorded):
    first = tuner(store, recorded).tune().plan
    quiet_s = recorded.sample_s
    recorded.sample_s = lambda plan: 1.5 * quiet_s(plan)  # another program has come
    second = tuner(store, recorded).tune().plan
    before, after = (found.baseline.throughput_samples_per_s for found in (first, second))
    assert after == pytest.approx(before / 1.5, rel=0.02)
    assert second.speedup.median == pytest.approx(first.speedup.median, rel=0.05)


def test_failures_are_kept_and_the_search_goes_on(store, recorded):
    recorded.fail = lambda p: Outcome.OUT_OF_MEMORY if p.strategy == "processes" else None
    outcome = tuner(store, recorded).tune()
    assert outcome.plan.plan.strategy != "processes"
    kept = [result.outcome for result in outcome.trials]
    assert Outcome.OUT_OF_MEMORY in kept


@pytest.mark.parametrize(
    "outcome",
    [Outcome.OUT_OF_MEMORY, Outcome.CRASH, Outcome.NAN_LOSS, Outcome.TIME_LIMIT],
)
def test_plan_that_fails_when_it_is_measured_again_is_not_chosen(store, recorded, outcome):
    recorded.fail_final = lambda plan: outcome
    chosen = tuner(store, recorded).tune().plan.plan
    failed = [plan for role, plan in recorded.ran if role is Role.FINAL]
    assert failed
    assert chosen not in failed


def test_no_plan_is_an_error_that_names_the_last_reason(store, recorded):
    recorded.fail = lambda plan: Outcome.CRASH
    with pytest.raises(NoPlanError, match=r"no trial of \d+ succeeded, .*crash"):
        tuner(store, recorded, replace(REQUEST, trials=2)).tune()


def test_defaults_are_the_best_plan_where_nothing_beats_them(store, recorded):
    defaults = Plan(strategy="threads", node_batch=32, threads_per_process=2)
    recorded.sample_s = lambda plan: 0.03 if plan == defaults else 0.05
    outcome = tuner(store, recorded, replace(REQUEST, trials=4)).tune()
    assert outcome.plan.plan == defaults
    assert outcome.plan.speedup.median == pytest.approx(1.0, rel=0.01)
    assert outcome.one_core_unknown == "no plan was raced again beside PyTorch's defaults"


@pytest.mark.parametrize(
    ("limits", "allowed"), [({"batch_size": 48}, {48}), ({"max_batch": 64}, {32, 64})]
)
def test_batches_stay_within_the_users_limits(store, recorded, limits, allowed):
    outcome = tuner(store, recorded, replace(REQUEST, **limits)).tune()
    assert {plan.node_batch for role, plan in recorded.ran if role is Role.SEARCH} <= allowed
    assert outcome.plan.plan.node_batch in allowed


def test_only_the_named_strategies_are_tried(store, recorded):
    tuner(store, recorded, replace(REQUEST, strategies=("threads",))).tune()
    assert {p.strategy for role, p in recorded.ran if role is Role.SEARCH} == {"threads"}


def test_numerics_are_kept_unless_asked_otherwise(store, recorded, usual):
    assert {plan.precision for _, plan in usual.recorded.ran} == {"fp32"}
    offered = replace(CASE, precisions=("bf16", "bf16_internal"))
    tuner(store, recorded, replace(REQUEST, precision="bf16", budget_s=600), offered).tune()
    tried = {plan.precision for role, plan in recorded.ran if role is Role.SEARCH}
    assert tried == {"bf16", "bf16_internal"}


ANY_PRECISION = replace(CASE, precisions=("fp32", "bf16", "bf16_internal"))
AUTO = replace(REQUEST, precision="auto")


def gain(recorded: Recorded, **factors: float) -> None:
    """Let settings other than the recorded ones change the time too."""
    known = recorded.sample_s

    def sample_s(plan: Plan) -> float:
        return known(plan) * factors.get(plan.precision, 1.0)

    recorded.sample_s = sample_s


def test_best_rounded_plan_is_measured_in_fp32_too(store, recorded):
    gain(recorded, bf16=0.5, bf16_internal=0.8)
    outcome = tuner(store, recorded, AUTO, ANY_PRECISION).tune()
    best = outcome.plan.plan
    assert best.precision == "bf16"
    assert replace(best, precision="fp32") in [plan for _, plan in recorded.ran]
    assert outcome.exact.plan == replace(best, precision="fp32")
    gained = outcome.plan.throughput_samples_per_s.median
    assert gained == pytest.approx(2 * outcome.exact.throughput_samples_per_s.median, rel=0.01)
    assert 140 < recorded.now_s <= 182


def test_best_plan_in_fp32_needs_no_word_of_what_fp32_would_give(store, recorded):
    gain(recorded, bf16=1.5, bf16_internal=1.2)
    outcome = tuner(store, recorded, AUTO, ANY_PRECISION).tune()
    assert outcome.plan.plan.precision == "fp32"
    assert outcome.exact is None


def test_plan_in_fp32_that_may_be_as_fast_as_the_best_rounded_one_is_chosen(store, recorded):
    outcome = tuner(store, recorded, AUTO, ANY_PRECISION).tune()  # precision gains nothing
    assert outcome.plan.plan.precision == "fp32"


def test_fp32_is_measured_again_where_its_trial_was_cut_short(store, recorded):
    """A plan that had clearly lost has no interval that a result could show."""
    gain(recorded, bf16=0.5, bf16_internal=0.8)
    recorded.fail = lambda plan: Outcome.SLOWER if plan.precision == "fp32" else None
    best = tuner(store, recorded, AUTO, ANY_PRECISION).tune().plan.plan
    assert (Role.FINAL, replace(best, precision="fp32")) in recorded.ran


def test_pictures_are_kept_unless_the_user_says_otherwise(store, recorded):
    case = replace(CASE, inputs=("files", "cache"))
    tuner(store, recorded, REQUEST, case).tune()
    assert "cache" in {plan.input for _, plan in recorded.ran}
    without = Recorded()
    best = tuner(store, without, replace(REQUEST, no_cache=True), case).tune().plan.plan
    assert {plan.input for _, plan in without.ran} == {"files"}
    assert best.input == "files"  # though trials of the first search are remembered


COMPILES = replace(CASE, can_compile=True)


@pytest.mark.parametrize(("epochs", "is_compiled"), [(1, False), (1000, True)])
def test_compile_time_is_charged_over_the_epochs_of_the_training(
    store, recorded, epochs, is_compiled
):
    known = recorded.sample_s
    recorded.sample_s = lambda plan: known(plan) * (0.8 if plan.compile else 1.0)
    recorded.compile_s = lambda plan: 60.0 if plan.compile else None
    request = replace(REQUEST, epochs=epochs, budget_s=900)
    outcome = tuner(store, recorded, request, COMPILES).tune()
    assert any(plan.compile for _, plan in recorded.ran)
    assert outcome.plan.plan.compile is is_compiled
    assert outcome.compile_s == (60.0 if is_compiled else None)
    kept = [
        trial.result.compile_s for trial in store.studies.all_trials() if trial.result.plan.compile
    ]
    assert set(kept) == {60.0}


def test_compile_time_is_that_of_the_first_trial_though_later_ones_find_it_compiled(
    store, recorded
):
    """The story: the finalists' short time was charged, and compiled plans seemed to cost none."""
    known, compiled = recorded.sample_s, set()
    recorded.sample_s = lambda plan: known(plan) * (0.8 if plan.compile else 1.0)

    def compile_s(plan: Plan) -> float | None:
        if not plan.compile:
            return None
        is_cached = plan in compiled
        compiled.add(plan)
        return 2.0 if is_cached else 60.0

    recorded.compile_s = compile_s
    long = replace(REQUEST, epochs=1000, budget_s=900)
    outcome = tuner(store, recorded, long, COMPILES).tune()
    kept = {
        trial.result.compile_s for trial in store.studies.all_trials() if trial.result.plan.compile
    }
    assert kept == {60.0, 2.0}
    assert outcome.plan.plan.compile
    assert outcome.compile_s == 60.0
    again = tuner(store, recorded, replace(long, epochs=1), COMPILES).tune()
    assert not again.plan.plan.compile


def test_time_that_checks_have_taken_is_part_of_the_budget(store, recorded):
    Search(store, recorded, checked_s=60.0).tune()
    assert 90 < recorded.now_s <= 120


def test_batch_whose_trial_would_eat_the_budget_is_left_out(store, recorded):
    recorded.sample_s = lambda plan: 1.0 / plan.threads
    tuner(store, recorded, replace(REQUEST, budget_s=400)).tune()
    assert {plan.node_batch for role, plan in recorded.ran if role is not Role.SHARE} == {32}


def slow_machine(recorded, sample_s, **cpu):
    """Let the recorded machine be as slow as one that trains VGG16."""
    recorded.sample_s = lambda plan: sample_s / plan.threads
    return replace(NODE, cpu=replace(CPU, **cpu))


def tune_complexsmall(store, recorded, node, **limits):
    request = replace(REQUEST, workload=Workload(use_case="complexsmall"), **limits)
    case = replace(CASE, default_batch=16, train_samples=712)
    return Search(store, recorded, request, case, node).tune()


def test_plans_on_all_cores_are_tried_where_one_core_is_slow(store, recorded):
    """Judged by the baseline's speed, no plan could show its own in time: none was tried."""
    node = slow_machine(recorded, 1.1)
    outcome = tune_complexsmall(store, recorded, node)
    assert any(role is Role.SEARCH for role, _ in recorded.ran)
    assert outcome.plan.plan.threads == 2
    assert outcome.warnings == ()


def test_budget_that_leaves_no_time_to_search_is_a_warning_with_a_budget_that_would_do(
    store, recorded
):
    node = slow_machine(recorded, 3.0)
    outcome = tune_complexsmall(store, recorded, node)
    assert {role for role, _ in recorded.ran} - {Role.SHARE} == {Role.DEFAULTS}
    (warning,) = outcome.warnings
    minutes = int(warning.rpartition("--budget ")[2].partition("m")[0])
    patient = Recorded()
    slow_machine(patient, 3.0)
    enough = tune_complexsmall(store, patient, node, budget_s=60 * minutes, fresh=True)
    assert any(role is Role.SEARCH for role, _ in patient.ran)
    assert enough.warnings == ()


def test_budget_that_ends_before_a_plan_within_the_limits_is_measured_says_so(store, recorded):
    with pytest.raises(NoPlanError, match=r"before a plan within the limits .* raise --budget$"):
        tuner(store, recorded, replace(REQUEST, batch_size=64, budget_s=1)).tune()


def test_same_seed_draws_the_same_plans(store, recorded, usual):
    tuner(store, recorded).tune()
    assert recorded.ran == usual.recorded.ran


GPU = Gpu(nvml_index=0, cuda_index=0, name="imagined", uuid="GPU-0")


def tune_with_gpu(store, recorded, cpu_sample_s, gpu_sample_s, budget_s):
    """Search for plans on a GPU."""
    recorded.sample_s = lambda plan: cpu_sample_s if "cpu" in plan.devices else gpu_sample_s
    request = replace(REQUEST, strategies=("gpu_data",), budget_s=budget_s)
    node = replace(NODE, gpus=(GPU,))
    Search(store, recorded, request, CASE, node).tune()
    return [plan.node_batch for role, plan in recorded.ran if role is Role.SEARCH]


def test_gpu_is_tried_with_large_batches_however_slow_the_cpu_is(store, recorded):
    batches = tune_with_gpu(store, recorded, 3.0, 0.0002, 180)
    assert max(batches) >= 32 * CASE.default_batch
    assert len(batches) > 5


def test_batch_that_a_gpu_could_not_show_in_time_is_left_out(store, recorded):
    batches = tune_with_gpu(store, recorded, 0.02, 0.0152, 300)
    assert max(batches) <= 16 * CASE.default_batch
    assert len(batches) > 3


OTHER_NODE = replace(NODE, node="n2")


def test_node_with_equal_hardware_confirms_a_plan_in_few_trials(store, recorded):
    best = tuner(store, recorded).tune().plan.plan
    recorded.ran.clear()
    other = Search(store, recorded, node=OTHER_NODE)
    other.tuner.measure_defaults()
    other.tuner.confirm([best])
    outcome = conclude(other.findings, store.plans)
    tried = [plan for role, plan in recorded.ran if role is Role.FINAL]
    assert tried == [best]
    assert not [role for role, _ in recorded.ran if role is Role.SEARCH]
    assert (outcome.plan.node, outcome.plan.plan, outcome.warnings) == ("n2", best, ())
    assert outcome.plan.speedup.median > 1


def test_plan_that_fails_on_the_other_node_yields_to_the_next(store, recorded):
    first, second = (
        Plan(strategy="threads", node_batch=batch, threads_per_process=2) for batch in (64, 128)
    )
    recorded.fail = lambda plan: Outcome.OUT_OF_MEMORY if plan == first else None
    other = Search(store, recorded, node=OTHER_NODE)
    other.tuner.measure_defaults()
    other.tuner.confirm([first, second])
    assert conclude(other.findings, store.plans).plan.plan == second


def test_plans_that_do_not_fit_into_memory_at_once_have_their_turns_alone(store, recorded):
    """As on a GPU: what one plan holds is missing to the next."""
    start, running = recorded.start, []

    def start_alone(plan: Plan):
        contender = start(plan)
        if running:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "another plan has it")
        running.append(contender)
        contender.close = lambda: running.clear()
        return contender

    recorded.start = start_alone
    outcome = tuner(store, recorded).tune()
    assert {result.outcome for result in outcome.trials} <= {Outcome.OK, Outcome.SLOWER}
    assert len({result.plan for result in outcome.trials}) > 3
    assert outcome.plan.speedup.median > 1.1


def test_plans_that_the_user_does_not_want_drive_out_none_that_is_wanted(store, recorded):
    """PyTorch's defaults were ahead of every plan of the one strategy that was asked for."""
    known = recorded.sample_s
    recorded.sample_s = lambda plan: known(plan) * (1.5 if plan.strategy == "sequential" else 1)
    request = replace(REQUEST, strategies=("sequential",))
    found = tuner(store, recorded, request).tune().plan
    assert found.plan.strategy == "sequential"
    assert found.speedup.median < 1


def test_defaults_that_are_nearly_the_best_stay_what_others_are_compared_with(store, recorded):
    recorded.sample_s = lambda plan: 0.01 * (1 + 0.001 * plan.processes)
    found = tuner(store, recorded).tune().plan
    assert found.baseline is not None
    assert found.speedup.median == pytest.approx(1.0, rel=0.01)


def test_slow_start_of_a_use_case_costs_no_plan_its_trial(store, recorded):
    recorded.start_s = 11.0
    outcome = tuner(store, recorded, replace(REQUEST, budget_s=600)).tune()
    assert Outcome.TIME_LIMIT not in {result.outcome for result in outcome.trials}
    assert outcome.plan.plan.threads == 2
