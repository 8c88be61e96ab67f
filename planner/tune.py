"""How is the best plan found within a budget? Baseline, search, finalists measured again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from planner.choice import Candidate, choose, contenders
from planner.errors import NoPlanError
from planner.result import Outcome, Role, TrialResult, with_longest_compile
from planner.search import PlanSearch, time_per_sample_s
from planner.store import Store
from planner.stored_plan import Baseline, StoredPlan, utc_now
from planner.study import Study
from planner.trial import TrialProgress
from planner.tune_request import (
    LARGEST_SHARE,
    TuneRequest,
    allows,
    choose_from,
    is_allowed,
    with_choices,
)
from probes.hardware import Hardware
from probes.timing import Interval, find_noise_warning, ratio

_MIN_TRIAL_S, _MAX_TRIAL_S = 10.0, 60.0
_TRIALS_PER_BUDGET = 8
_STEPS_TO_JUDGE = 5
_BASELINE_SHARE = 0.5
_COMPILING_S = 90.0
"""Time that a trial is given beyond its own to compile: AlexNet takes most of a minute."""
_EXACT_FACTOR = 2.5
"""How much longer a plan may take in fp32: bf16 has twice the peak rate, and half the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOutcome:
    """What the search found."""

    plan: StoredPlan
    baseline: TrialResult | None
    trials: tuple[TrialResult, ...]
    """All trials of the study, earlier ones included."""
    new_trials: int
    stepping_s: float
    """Time spent in training steps by the new trials, warm-up included."""
    interrupted: bool
    warnings: tuple[str, ...]
    exact: StoredPlan | None = None
    """Best plan in fp32, where the user left the precision open and the best one is not it."""
    compile_s: float | None = None
    """Time that the best plan takes to compile, ``None`` where it compiles nothing."""
    epochs: int
    """Over which that time is charged."""


class RunTrial(Protocol):
    """Runs one plan for a short time, or says what a recorded run of it showed."""

    def __call__(
        self,
        plan: Plan,
        *,
        role: Role,
        time_limit_s: float,
        enough_s: float,
        to_beat_s: Interval | None,
        parameters: Mapping[str, Setting],
        on_step: Callable[[TrialProgress], None],
    ) -> TrialResult:
        """Run the plan; a failure is a result."""


class Listener(Protocol):
    """Hears how the search gets on."""

    def trial_started(self, plan: Plan, role: Role, left_s: float) -> None:
        """Hear that a plan is being tried."""

    def step(self, progress: TrialProgress) -> None:
        """Hear of a step."""

    def trial_ended(self, result: TrialResult, *, is_best: bool) -> None:
        """Hear what a trial showed."""


class Tuner:
    """Drives one search, keeps each trial as it ends.

    Args:
        request: What the user asks.
        case: What is trained, from `TrialRunner.describe`.
        node: This machine.
        software: Versions that the measurements depend on.
        store: Where trials and the plan are kept.
        run_trial: Runs a plan.
        listener: Is told how it goes.
        checked_s: Time of the budget that checks before the search have taken.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        request: TuneRequest,
        case: CaseFacts,
        node: Hardware,
        software: Mapping[str, str],
        store: Store,
        run_trial: RunTrial,
        listener: Listener,
        *,
        checked_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request = request
        self._case = case
        self._node = node
        self._software = software
        self._store = store
        self._run_trial = run_trial
        self._listener = listener
        self._checked_s = checked_s
        self._clock = clock
        self._over_samples = float(request.epochs * case.train_samples)
        study = Study(
            use_case=request.use_case,
            node=node.node,
            fingerprint=node.fingerprint(),
            precision=request.precision,
            software=software,
            data=case.digest,
            seed=request.seed,
        )
        begin = store.begin_study_afresh if request.fresh else store.get_or_create_study
        self._study_id = begin(study)
        self._plainest = Plan(strategy="sequential", node_batch=case.default_batch)
        known = [stored.result for stored in store.trials(self._study_id)]
        self._results = with_longest_compile(known)
        self._earlier = len(self._results)
        self._finished = store.count_finished_trials(self._study_id)

    def tune(self) -> TuneOutcome:
        """Search until the budget is used up; on Ctrl-C give what is known.

        Raises:
            NoPlanError: No trial succeeded.
            InfeasiblePlanError: None of the strategies can run here.
            KeyboardInterrupt: Stopped before any trial had succeeded.
        """
        budget_s = self._request.budget_s - self._checked_s
        self._deadline = self._clock() + budget_s - self._spent_s()
        interrupted = False
        try:
            self._search()
            self._measure_finalists()
            self._measure_exact()
        except KeyboardInterrupt:
            if not self._candidates():
                raise
            interrupted = True
        return self._conclude(interrupted)

    def _search(self) -> None:
        if self._baseline() is None:
            limit_s = max(_MIN_TRIAL_S, _BASELINE_SHARE * self._left_s())
            self._run(self._plainest, limit_s)
        case = self._with_choices()
        search = PlanSearch(
            self._request.strategies,
            case,
            self._node,
            history=self._results,
            seed=self._request.seed,
            over_samples=self._over_samples,
            allows=lambda plan: allows(self._request, plan) and self._is_affordable(plan),
        )
        while self._may_go_on() and (proposal := search.propose()):
            spare_s = self._left_s() - self._final_s()
            limit_s = min(self._trial_limit_s(proposal.plan), spare_s)
            if limit_s < self._least_s(proposal.plan):
                break
            result = self._run(proposal.plan, limit_s, Role.SEARCH, proposal.parameters)
            search.tell(proposal, result)

    def _measure_finalists(self) -> None:
        """Measure the best again: the fastest of many noisy times is faster than it really is."""
        measured = [r.plan for r in self._unfinished() if r.role is Role.FINAL]
        waiting = [c.plan for c in contenders(self._candidates()) if c.plan not in measured]
        spare_s = self._left_s() - self._exact_s()
        while waiting and spare_s < sum(self._least_again_s(plan) for plan in waiting):
            waiting.pop()
        while waiting:
            spare_s = self._left_s() - self._exact_s()
            limit_s = min(self._trial_limit_s(waiting[0]), spare_s / len(waiting))
            self._run(waiting.pop(0), limit_s, Role.FINAL)

    def _measure_exact(self) -> None:
        """Measure the best plan in fp32 too, so that what its precision gains is no guess."""
        twin = self._unmeasured_twin()
        if twin is None or self._left_s() < self._least_s(twin):
            return
        self._run(twin, min(self._trial_limit_s(twin), self._left_s()), Role.EXACT)

    def _unmeasured_twin(self) -> Plan | None:
        """Give the best plan with precision fp32, where the user would want to know its speed."""
        candidates = self._candidates()
        if self._request.precision != "auto" or not candidates:
            return None
        twin = replace(self._choose(candidates).plan, precision="fp32")
        measured = any(
            result.plan == twin and result.outcome is not Outcome.SLOWER
            for result in self._unfinished()
        )
        return None if measured else twin

    def _run(
        self,
        plan: Plan,
        limit_s: float,
        role: Role = Role.BASELINE,
        parameters: Mapping[str, Setting] | None = None,
    ) -> TrialResult:
        best = self._best_time_s()
        self._listener.trial_started(plan, role, self._left_s())
        result = self._run_trial(
            plan,
            role=role,
            time_limit_s=limit_s,
            enough_s=self._usual_s(),
            to_beat_s=best if role is Role.SEARCH else None,
            parameters=parameters or {},
            on_step=self._listener.step,
        )
        self._store.add_trial(self._study_id, result)
        self._results = with_longest_compile([*self._results, result])
        result = self._results[-1]
        time_s = time_per_sample_s(result, self._over_samples)
        is_best = time_s is not None and (best is None or time_s < best.median)
        self._listener.trial_ended(result, is_best=is_best)
        return result

    def _spent_s(self) -> float:
        """Time that an unfinished search of this study has used already."""
        return sum(result.elapsed_s for result in self._unfinished())

    def _unfinished(self) -> list[TrialResult]:
        """Trials since the last search that came to its end."""
        return self._results[self._finished :]

    def _left_s(self) -> float:
        return self._deadline - self._clock()

    def _may_go_on(self) -> bool:
        limit = self._request.trials
        drawn = sum(1 for result in self._unfinished() if result.role is Role.SEARCH)
        if limit is not None and drawn >= limit:
            return False
        return self._left_s() > self._final_s()

    def _final_s(self) -> float:
        """Time to set aside for the finalists; a baseline that nothing beats needs none."""
        if self._knows_only_baseline():
            return 0.0
        times = [self._time_of(finalist.plan) for finalist in contenders(self._candidates())]
        return min(sum(times) + self._exact_s(), self._request.budget_s / 3)

    def _exact_s(self) -> float:
        """Time to set aside for the best plan in fp32, which is slower."""
        if self._unmeasured_twin() is None:
            return 0.0
        rounded = self._choose(self._candidates()).plan
        return min(_EXACT_FACTOR * self._time_of(rounded), self._request.budget_s / 6)

    def _time_of(self, plan: Plan) -> float:
        return max(r.elapsed_s for r in self._results if r.plan == plan)

    def _usual_s(self) -> float:
        """Time after which even a noisy trial has had its share of the budget."""
        share_s = self._request.budget_s / _TRIALS_PER_BUDGET
        return min(max(share_s, _MIN_TRIAL_S), _MAX_TRIAL_S)

    def _trial_limit_s(self, plan: Plan) -> float:
        compiling_s = _COMPILING_S if plan.compile else 0.0
        return max(self._usual_s(), 2 * self._least_s(plan)) + compiling_s

    def _least_s(self, plan: Plan) -> float:
        """Time in which a plan as fast as the best one can show it.

        Where that is the baseline, each thread of the plan may be as fast as the baseline's one.
        Of GPUs nothing is known before a plan on one has been measured.
        """
        if "cpu" not in plan.devices and not self._knows_gpus():
            return 0.0
        best, baseline = self._best_time_s(), self._baseline()
        threads = plan.threads if self._knows_only_baseline() else 1
        known_s = best.median if best else baseline and time_per_sample_s(baseline)
        return _STEPS_TO_JUDGE * (known_s or 0.0) * plan.node_batch / threads

    def _is_affordable(self, plan: Plan) -> bool:
        """Whether a plan on a GPU can be judged in time; batches on CPUs are chosen so before."""
        least = self._request.batch_size or self._case.default_batch
        if "cpu" in plan.devices or plan.node_batch <= least:
            return True
        return self._least_s(plan) <= LARGEST_SHARE * self._request.budget_s

    def _knows_gpus(self) -> bool:
        return any("cpu" not in candidate.plan.devices for candidate in self._candidates())

    def _knows_only_baseline(self) -> bool:
        return all(candidate.plan == self._plainest for candidate in self._candidates())

    def _least_again_s(self, plan: Plan) -> float:
        """Time in which a plan that was measured shows its speed again, its start included."""
        measured = [(r.elapsed_s, r.measurement) for r in self._results if r.plan == plan]
        starts_s = [elapsed_s - times.total_s for elapsed_s, times in measured if times]
        return self._least_s(plan) + max([0.0, *starts_s])

    def _with_choices(self) -> CaseFacts:
        """Put the user's limits into the search space, and leave out what takes too long."""
        baseline = self._baseline()
        time_s = (time_per_sample_s(baseline) if baseline else None) or 0.0
        least_s = _STEPS_TO_JUDGE * time_s / self._node.cpu.usable_cores
        return with_choices(self._case, self._request, least_time_per_sample_s=least_s)

    def _candidates(self) -> list[Candidate]:
        return choose_from(self._results, self._request, self._over_samples)

    def _baseline(self) -> TrialResult | None:
        """Give the baseline of this search: since an earlier one the machine may have changed."""
        done = [r for r in self._unfinished() if r.role is Role.BASELINE]
        succeeded = [r for r in done if r.outcome is Outcome.OK]
        return succeeded[-1] if succeeded else None

    def _best_time_s(self) -> Interval | None:
        """Give the best time per sample so far, in seconds."""
        candidates = self._candidates()
        if not candidates:
            return None
        rate = max((c.worth for c in candidates), key=lambda worth: worth.median)
        return Interval(
            median=1 / rate.median, low=1 / rate.high, high=1 / rate.low, count=rate.count
        )

    def _conclude(self, interrupted: bool) -> TuneOutcome:
        candidates = self._candidates()
        if not candidates:
            self._store.finish_search(self._study_id)
            raise NoPlanError(_why_none(self._results, self._request))
        best = self._choose(candidates)
        baseline = self._baseline()
        stored = self._stored(best, baseline)
        new = self._results[self._earlier :]
        stepping_s = sum(r.measurement.total_s for r in new if r.measurement)
        haste = None if interrupted else self._find_haste()
        warnings = (haste, find_noise_warning(best.measurement))
        return TuneOutcome(
            plan=replace(stored, id=self._store.save_plan(stored, ends_search=not interrupted)),
            baseline=baseline,
            trials=tuple(self._results),
            new_trials=len(new),
            stepping_s=stepping_s,
            interrupted=interrupted,
            warnings=tuple(warning for warning in warnings if warning),
            exact=self._exact(best, candidates),
            compile_s=best.compile_s,
            epochs=self._request.epochs,
        )

    def _exact(self, best: Candidate, candidates: Sequence[Candidate]) -> StoredPlan | None:
        """Give the best plan in fp32, where the best of all is another one."""
        if self._request.precision != "auto" or best.plan.precision == "fp32":
            return None
        current = choose_from(self._unfinished(), self._request, self._over_samples)
        exact = [c for c in current or candidates if c.plan.precision == "fp32"]
        return self._stored(choose(exact), self._baseline()) if exact else None

    def _choose(self, candidates: Sequence[Candidate]) -> Candidate:
        """Choose from this search's evidence, once it has measured its finalists again.

        Among them are the best plans of earlier searches. Of other plans' earlier times it is not
        known whether they still hold.
        """
        current = choose_from(self._unfinished(), self._request, self._over_samples)
        is_confirmed = any(candidate.role is Role.FINAL for candidate in current)
        return choose(current if is_confirmed else candidates)

    def _find_haste(self) -> str | None:
        """Warn of a budget that went into the baseline alone, and say which would do."""
        if self._request.trials == 0 or any(r.role is Role.SEARCH for r in self._results):
            return None
        batch, cores = self._case.default_batch, self._node.cpu.usable_cores
        trial_s = self._least_s(replace(self._plainest, threads_per_process=cores))
        needed_s = self._spent_s() + _TRIALS_PER_BUDGET * trial_s
        minutes = math.ceil(max(needed_s, 2 * self._request.budget_s) / 60)
        return (
            f"budget_s={self._request.budget_s:g} and node_batch={batch}: no time was left to try "
            f"a plan beside the baseline: about --budget {minutes}m is needed"
        )

    def _stored(self, best: Candidate, baseline: TrialResult | None) -> StoredPlan:
        speedup = shown = None
        if baseline is not None and baseline.measurement is not None:
            scale = best.plan.node_batch / baseline.plan.node_batch
            speedup = ratio(baseline.measurement, best.measurement, scale=scale)
            shown = Baseline(
                strategy=baseline.plan.strategy,
                node_batch=baseline.plan.node_batch,
                throughput_samples_per_s=1 / (time_per_sample_s(baseline) or 1.0),
            )
        return StoredPlan(
            use_case=self._request.use_case,
            node=self._node.node,
            fingerprint=self._node.fingerprint(),
            plan=best.plan,
            throughput_samples_per_s=best.throughput,
            speedup=speedup,
            baseline=shown,
            peak_memory_bytes=best.peak_memory_bytes,
            created_at=utc_now(),
            software=self._software,
            study_id=self._study_id,
        )


def _why_none(results: Sequence[TrialResult], request: TuneRequest) -> str:
    if not results:
        return "no trial succeeded: the budget ended before the first one, raise --budget"
    allowed = [result for result in results if is_allowed(result, request)]
    if not allowed and any(result.outcome is Outcome.OK for result in results):
        options = "--budget" if request.trials is None else "--budget or --trials"
        return f"the search ended before a plan within the limits was measured: raise {options}"
    last = (allowed or results)[-1]
    return f"no trial of {len(results)} succeeded, the last one: {last.outcome}, {last.reason}"
