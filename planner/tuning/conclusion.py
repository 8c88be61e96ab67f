"""Conclusion of a search: the best plan with its evidence, and what the user should know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from launch.plan import Plan
from launch.strategies import load_strategy
from planner.errors import NoPlanError
from planner.plans.objective import Objective
from planner.plans.step_times import fit_measured_steps
from planner.plans.stored_plan import Baseline, ComparedPlan, StoredPlan, utc_now
from planner.quantities import format_count, format_range
from planner.trials.comparison import PairNoise, compare_results
from planner.trials.drift import drift_deviation, rate_interval
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import Candidate, choose, find_runner_up
from planner.tuning.disturbances import explain_disturbances
from planner.tuning.findings import Findings
from planner.tuning.trial_times import TrialTimes
from probes.timing import Interval

_WAITS_FOR_INPUT = 0.1
"""Part of the time from which on a user should hear of it."""


class PlanWriter(Protocol):
    """Stores what a search has found: the plans of the store, or what tells its owner of them."""

    def save(self, stored: StoredPlan, *, ends_search: bool = False) -> int:
        """Save a plan with its evidence; return the id it was given."""

    def end_without_plan(self, study_id: int) -> None:
        """Note that a search came to its end and has no plan to store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOutcome:
    """What the search found."""

    plan: StoredPlan
    defaults: TrialResult | None
    """PyTorch's defaults, as this search measured them."""
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
    default_batch: int
    """The use case's own."""
    own_batch_unknown: str | None = None
    """Why the best plan was not raced against itself with the use case's own batch; ``None`` where
    it was, or has that batch."""
    one_core_unknown: str | None = None
    """Why the best plan was not raced against the run on one core; ``None`` where it was, or is
    that, and where there is no such run."""
    settings_gain: Interval | None = None
    """Speedup over PyTorch's defaults of the best plan's settings with the use case's own batch, in
    turns side by side; ``None`` where the plan has that batch, or these had none."""
    lost_in_turns: int = 0
    """Plans that were reported with more samples per second than the best one has in the end, and
    that took more time than it in the rounds in which both had a turn."""


def conclude(
    findings: Findings,
    plan_writer: PlanWriter,
    *,
    interrupted: bool = False,
    chosen: Plan | None = None,
    objective: Objective | None = None,
) -> TuneOutcome:
    """Choose the best plan and keep it, unless the request wants its trials alone.

    Args:
        findings: What the trials showed.
        plan_writer: Stores the plan.
        interrupted: Whether the search did not come to its end, so that the next one goes on.
        chosen: The best plan, where it is not the one with the highest throughput.
        objective: What it was chosen for then.

    Raises:
        NoPlanError: No trial succeeded.
    """
    candidates = findings.candidates()
    if not candidates:
        if not interrupted:
            plan_writer.end_without_plan(findings.study_id)
        raise NoPlanError(findings.explain_no_plan())
    best = findings.choose(candidates)
    if chosen is not None:
        known = [*candidates, *findings.current_candidates()]
        best = next((one for one in reversed(known) if one.plan == chosen), best)
    stored = _stored(findings, best, objective)
    new = findings.new_results()
    warnings = [_warn_slower(findings, stored)]
    if not interrupted:
        warnings.append(_warn_short_budget(findings) or _warn_uncompared(findings, stored))
        warnings.append(_warn_unmeasured(findings))
    warnings += [_warn_input(best), explain_disturbances(new)]
    if findings.request.keeps_plan:
        stored = replace(stored, id=plan_writer.save(stored, ends_search=not interrupted))
    elif not interrupted:
        plan_writer.end_without_plan(findings.study_id)
    return TuneOutcome(
        plan=stored,
        defaults=findings.defaults(),
        trials=tuple(findings.results),
        new_trials=len(new),
        stepping_s=sum(r.measurement.total_s for r in new if r.measurement),
        interrupted=interrupted,
        warnings=tuple(warning for warning in warnings if warning),
        exact=_exact(findings, best, candidates, objective),
        compile_s=best.compile_s,
        epochs=findings.request.epochs,
        default_batch=findings.case.default_batch,
        own_batch_unknown=_explain_no_own_batch(findings, best, stored, interrupted=interrupted),
        one_core_unknown=_explain_no_one_core(findings, best, stored, interrupted=interrupted),
        settings_gain=_find_settings_gain(findings, stored),
        # For another objective, rates were reported by what samples are worth.
        lost_in_turns=_count_lost(findings, best) if objective is None else 0,
    )


def _explain_no_own_batch(
    findings: Findings, best: Candidate, stored: StoredPlan, *, interrupted: bool
) -> str | None:
    """Say why it is not known what the settings gain apart from the batch, where it is not."""
    case, plan = findings.case, best.plan
    own = findings.subject.at_own_batch(plan)
    if plan == own or stored.objective is not None:
        return None
    if any(one.name == "own_batch" or one.plan == own for one in stored.comparisons):
        return None
    if own is None:
        least = plan.micro_batches * plan.replicas
        return f"the plan cuts a batch into {least} parts: it cannot have {case.default_batch}"
    return _explain_no_turns(findings, own, interrupted=interrupted)


def _explain_no_one_core(
    findings: Findings, best: Candidate, stored: StoredPlan, *, interrupted: bool
) -> str | None:
    """Say why it is not known how much faster than one core the best plan is, where it is not."""
    one_core, defaults = findings.baseline_plan, findings.defaults_plan
    if one_core is None or one_core in (best.plan, defaults) or stored.objective is not None:
        return None
    if any(one.name == "one_core" or one.plan == one_core for one in stored.comparisons):
        return None
    roles = {result.role for result in findings.current_results()}
    had_final = not roles.isdisjoint((Role.FINAL, Role.BASELINE))
    if best.plan == defaults and not had_final and not interrupted:
        return f"no plan was raced again beside {findings.subject.defaults_name}"
    return _explain_no_turns(findings, one_core, interrupted=interrupted)


def _explain_no_turns(findings: Findings, plan: Plan, *, interrupted: bool) -> str:
    """Say why a plan had no turns beside the best one."""
    failed = [r for r in findings.results if r.plan == plan and not r.outcome.has_times]
    if failed and failed[-1].outcome is not Outcome.NO_TIME:
        return f"its trial failed: {failed[-1].reason or failed[-1].outcome}"
    if interrupted:
        return "the search was stopped before its turns"
    return "no time or memory was left for it: raise --budget"


def _exact(
    findings: Findings,
    best: Candidate,
    candidates: Sequence[Candidate],
    objective: Objective | None,
) -> StoredPlan | None:
    """Give the best plan in fp32, where the best of all is another one.

    Of another batch than that one's, samples may be worth less than their rate says.
    """
    if findings.request.precision != "auto" or best.plan.precision == "fp32":
        return None
    exact = [c for c in findings.current_candidates() or candidates if c.plan.precision == "fp32"]
    if objective is not None:
        exact = [c for c in exact if c.plan.node_batch == best.plan.node_batch]
    return _stored(findings, choose(exact), objective) if exact else None


def _count_lost(findings: Findings, best: Candidate) -> int:
    least = _seen_rate(best).median
    seemed = {
        one.plan
        for one in findings.added
        if (rate := one.reported_samples_per_s()) is not None and rate > least
    }
    beside = [c for c in findings.current_candidates() if c.plan in seemed]
    leads = [compare_results(c, best) for c in beside if c.plan != best.plan]
    return sum(1 for lead in leads if lead is not None and lead.median > 1)


def _stored(findings: Findings, best: Candidate, objective: Objective | None) -> StoredPlan:
    results = findings.current_results() or findings.results
    noise = PairNoise.of_results(results)
    comparisons = _compare(findings, best, results, noise)
    defaults = next((one for one in comparisons if one.name == "defaults"), None)
    baseline = None
    if defaults is not None:
        baseline = Baseline(
            strategy=defaults.plan.strategy,
            node_batch=defaults.plan.node_batch,
            throughput_samples_per_s=defaults.throughput_samples_per_s,
        )
    rate = rate_interval(_seen_rate(best), drift_deviation(results), noise)
    # Where others computed beside its turns, it is faster without them, by how much is not known.
    rate = replace(rate, high=rate.high * best.measurement.most_slowed)
    return StoredPlan(
        use_case=findings.request.workload.use_case,
        use_case_digest=findings.case.digest,
        node=findings.node.node,
        fingerprint=findings.node.fingerprint(),
        plan=replace(best.plan, lr_scaling=findings.request.lr_scaling),
        throughput_samples_per_s=rate,
        speedup=None if defaults is None else defaults.speedup,
        baseline=baseline,
        comparisons=comparisons,
        peak_memory_bytes=best.peak_memory_bytes,
        peak_device_memory_bytes=best.peak_device_memory_bytes,
        step_time=fit_measured_steps(best.plan, results),
        gradient_bytes=findings.case.parameter_bytes or None,
        begins_early=findings.case.updates_in_parts
        and load_strategy(best.plan.strategy).begins_early(best.plan),
        is_generated=findings.case.is_generated,
        objective=objective,
        created_at=utc_now(),
        software=findings.software,
        study_id=findings.study_id,
    )


def _warn_slower(findings: Findings, stored: StoredPlan) -> str | None:
    """Say what a user must know first: that the search has gained nothing."""
    request = findings.request
    named = request.strategies or ()
    if named and stored.plan.strategy not in named:
        return (
            f"no plan of {', '.join(named)} is faster than the baseline, which is stored: "
            "leave out --strategies to try all"
        )
    if stored.speedup is None or stored.speedup.median >= 1 or stored.objective is not None:
        return None
    limits = {
        "--strategies": named,
        "--batch-size": request.batch_size,
        "--max-batch": request.max_batch,
    }
    given = " and ".join(option for option, value in limits.items() if value)
    remedy = f"leave out {given}" if given else "raise --budget"
    return (
        f"the plan found is slower than {findings.subject.defaults_name}, "
        f"{format_range(stored.speedup)} times as fast: {remedy}"
    )


def _warn_uncompared(findings: Findings, stored: StoredPlan) -> str | None:
    """Warn of a plan that the budget has left no turns beside PyTorch's defaults for."""
    if stored.speedup is not None or stored.objective is not None:
        return None
    return (
        f"no turns of the plan beside {findings.subject.defaults_name}: it is not known which is "
        "faster, raise --budget"
    )


def _warn_unmeasured(findings: Findings) -> str | None:
    """Say that the final ended before some of its plans had a turn: they have not lost it."""
    finalists = [r for r in findings.new_results() if r.role is Role.FINAL]
    measured = {result.plan for result in finalists if result.outcome is not Outcome.NO_TIME}
    plans = {result.plan for result in finalists} - measured
    if not plans or not measured:
        return None
    which = format_count(len(plans), "plan")
    return f"{which} had no turn in the final and may be faster: raise --budget"


def _compare(
    findings: Findings, best: Candidate, results: Sequence[TrialResult], noise: PairNoise
) -> tuple[ComparedPlan, ...]:
    """Give what the best plan was raced against, in turns side by side."""
    own_batch = findings.subject.at_own_batch(best.plan)
    candidates = findings.current_candidates() or findings.candidates()
    one_core = [r for r in results if r.plan == findings.baseline_plan != best.plan]
    raced: list[tuple[str, TrialResult | Candidate | None]] = [
        ("defaults", _last(results, Role.DEFAULTS)),
        ("one_core", _last(results, Role.BASELINE)),
        # Each finalist may have had turns with it.
        ("own_batch", _last([r for r in results if r.plan == own_batch], Role.OWN_BATCH)),
        ("runner_up", find_runner_up(candidates, best)),
        # Its turns may have been those of a finalist, or of one with the use case's own batch.
        ("one_core", _last(one_core)),
        ("own_batch", _last([r for r in results if r.plan == own_batch != best.plan])),
    ]
    found: list[ComparedPlan] = []
    for name, other in raced:
        if other is None or other.measurement is None:
            continue
        if any(other.plan == compared.plan for compared in found):
            continue
        speedup = compare_results(other, best, noise=noise)
        if other.plan == best.plan:
            speedup = Interval(median=1.0, low=1.0, high=1.0, count=1)
        if speedup is not None:
            rate = _seen_rate(best).median / speedup.median
            compared = ComparedPlan(
                name=name, plan=other.plan, throughput_samples_per_s=rate, speedup=speedup
            )
            found.append(compared)
    return tuple(found)


def _find_settings_gain(findings: Findings, stored: StoredPlan) -> Interval | None:
    """Give what the best plan gains over the defaults by its settings, apart from its batch."""
    plans = {one.name: one.plan for one in stored.comparisons}
    own = plans.get("own_batch")
    if own is None or own.node_batch == stored.plan.node_batch:
        return None
    results = findings.current_results() or findings.results
    defaults = _last([r for r in results if r.plan == plans.get("defaults")])
    alike = _last([r for r in results if r.plan == own])
    if defaults is None or alike is None:
        return None
    return compare_results(defaults, alike, noise=PairNoise.of_results(results))


def _seen_rate(best: Candidate) -> Interval:
    """Give a plan's rate without the machine's drift, where some turn of its own was as fast.

    Others that compute may slow one plan tenfold and the plan beside it not at all. The machine
    then seems to have been slow for both, and the second plan faster than it ever was.
    """
    batch, known = best.plan.node_batch, best.measurement
    if best.throughput.median <= batch / min(known.samples_s):
        return best.throughput
    return known.interval_s().reciprocal(batch)


def _last(results: Sequence[TrialResult], role: Role | None = None) -> TrialResult | None:
    in_role = (result for result in reversed(results) if role in (None, result.role))
    return next((one for one in in_role if one.outcome.has_times and one.measurement), None)


def _warn_input(best: Candidate) -> str | None:
    """Say that a plan waits for its input, where it does."""
    share = best.measurement.input_share or 0.0
    if share < _WAITS_FOR_INPUT:
        return None
    return (
        f"the best plan waits for its input for {100 * share:.0f} % of the time: faster reading "
        "(more loader workers, --budget for more trials, a faster disk) would gain more"
    )


def _warn_short_budget(findings: Findings) -> str | None:
    """Warn of a budget that went into the baseline alone, and say which would do."""
    request = findings.request
    results = [result for result in findings.results if result.role is not Role.SHARE]
    searched = any(r.role in (Role.SEARCH, Role.FINAL) for r in results)
    if request.trials == 0 or searched:
        return None
    batch = findings.case.default_batch
    needed_s = findings.spent_s() + 4 * TrialTimes(findings).min_s(findings.defaults_plan)
    minutes = math.ceil(max(needed_s, 2 * request.budget_s) / 60)
    return (
        f"--budget {request.budget_s:g}s with batches of {batch}: no time was left to try a plan "
        f"beside the baseline: use --budget {minutes}m or more"
    )
