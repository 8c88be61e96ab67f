"""Worth of a stored plan: parts of its step, runner-up, variations, baselines, cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.scripts.program import BATCH
from planner.plans.stored_plan import StoredPlan
from planner.quantities import interval_json
from planner.scripts.naming import STRATEGY as SCRIPT
from planner.trials.result import Outcome, TrialResult
from planner.tuning.study import StoredTrial
from planner.worth.batch_advice import (
    LINE_MISSES,
    BatchAdvice,
    MeasuredNoise,
    advise,
    why_no_advice,
)
from planner.worth.evidence import Evidence, chance_above_one
from planner.worth.step_parts import StepPart, split_step
from planner.worth.variations import Variation, vary
from probes import codec
from probes.hardware import Hardware
from probes.timing import Interval

ONE_CORE = "one core"
DEFAULTS = "PyTorch's defaults"
AS_IT_IS = "the script as it is"
OWN_BATCH = "this plan, usual batch"
_RACED = {"one_core": ONE_CORE, "defaults": DEFAULTS, "own_batch": OWN_BATCH}
"""By the names of `ComparedPlan`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBaseline:
    """A plan that a stored one is held against."""

    name: str
    plan: Plan
    throughput_samples_per_s: Interval

    speedup: Interval
    """Samples per second of the stored plan / of this one."""

    in_turns: bool
    """Whether the two had turns side by side; else it is estimated from trials of other moments."""

    epochs_until_paid: float | None
    """Epochs after which what tuning took is saved; ``None`` where they are never, or the number
    of training samples is not on record."""

    training_until_paid_s: float | None
    """Time of a training by this baseline, of which what tuning took is saved; ``None`` where
    nothing is."""

    def epochs_range(self) -> tuple[float, float] | None:
        """Give the ends of the 95 % interval of `epochs_until_paid`, by that of the speedup.

        An epoch of the plan saves ``speedup - 1`` times its own time. The upper end is infinite
        where the plan is not shown to be faster.
        """
        return self._range(self.epochs_until_paid, lambda speedup: speedup - 1)

    def training_range(self) -> tuple[float, float] | None:
        """Give the same of `training_until_paid_s`, of which ``1 - 1 / speedup`` is saved."""
        return self._range(self.training_until_paid_s, lambda speedup: 1 - 1 / speedup)

    def _range(
        self, value: float | None, saved: Callable[[float], float]
    ) -> tuple[float, float] | None:
        if value is None:
            return None
        low, middle, high = (
            saved(max(1.0, speedup))
            for speedup in (self.speedup.low, self.speedup.median, self.speedup.high)
        )
        return value * middle / high, value * middle / low if low else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The fastest other plan of the study."""

    plan: Plan

    lead: Interval
    """Samples per second of the stored plan / of this one."""

    in_turns: bool
    """As `KnownBaseline.in_turns`."""

    @property
    def certainty(self) -> float:
        """Probability that the stored plan is the faster one."""
        return chance_above_one(self.lead)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorth:
    """What the trials of a study say about the plan that was chosen. Unknown parts are empty."""

    step_s: float
    step_parts: tuple[StepPart, ...] = ()
    runner_up: RunnerUp | None = None
    variations: tuple[Variation, ...] = ()
    baselines: tuple[KnownBaseline, ...] = ()
    batches: BatchAdvice | None = None
    """What other batches would mean for the time to a loss."""

    batches_unknown: str | None = None
    """Why that is not known."""

    tuning_s: float
    """Time of the study's trials until the plan was stored; what comes before them apart."""

    num_trials: int

    def to_json(self) -> dict[str, Any]:
        """Give everything as plain values for scripts."""
        runner_up = self.runner_up
        return {
            "step_time_s": self.step_s,
            "step_parts": codec.to_builtins(self.step_parts),
            "runner_up": runner_up
            and {
                "plan": codec.to_builtins(runner_up.plan),
                "lead": interval_json(runner_up.lead),
                "certainty": runner_up.certainty,
            },
            "variations": [
                {
                    "setting": one.setting,
                    "value": one.value,
                    "other": one.other,
                    "speed": interval_json(one.speed),
                    "basis": one.basis.name.lower(),
                }
                for one in self.variations
            ],
            "baselines": [
                {
                    "name": one.name,
                    "plan": codec.to_builtins(one.plan),
                    "throughput_samples_per_s": interval_json(one.throughput_samples_per_s),
                    "speedup": interval_json(one.speedup),
                    "epochs_until_paid": one.epochs_until_paid,
                    **_ends_json("epochs_until_paid", one.epochs_range()),
                    "training_until_paid_s": one.training_until_paid_s,
                    **_ends_json("training_until_paid_s", one.training_range()),
                }
                for one in self.baselines
            ],
            "batches": codec.to_builtins(self.batches),
            "batches_unknown": self.batches_unknown,
            "tuning_s": self.tuning_s,
            "trials": self.num_trials,
        }


def _ends_json(name: str, ends: tuple[float, float] | None) -> dict[str, float | None]:
    """Give the ends of a figure's interval; no upper end means never."""
    low, high = ends or (None, None)
    return {f"{name}_ci_low": low, f"{name}_ci_high": None if high == math.inf else high}


def assess(
    stored: StoredPlan,
    trials: Sequence[StoredTrial],
    facts: CaseFacts | None,
    node: Hardware | None,
    noise: MeasuredNoise | None = None,
) -> PlanWorth | None:
    """Say what a plan is worth, by the trials of its study and whatever else is on record.

    Returns:
        ``None`` where none of its trials are.
    """
    scaled = stored.plan
    stored = replace(stored, plan=replace(scaled, lr_scaling="none"))  # as its trials were
    evidence = Evidence(trials, stored.created_at)
    result = evidence.find(stored.plan)
    if result is None or result.measurement is None:
        return None
    step_s = stored.plan.node_batch / _rate_of(result).median
    waiting = result.measurement.input_share
    parts = split_step(stored.plan, step_s, facts, node, input_share=waiting)
    advice, unknown, steps = None, None, stored.step_time
    rate = stored.throughput_samples_per_s
    misses = steps is not None and steps.contradicts(scaled.node_batch, rate.median)
    if misses:
        steps = None
    if facts is not None:
        advice = advise(scaled, rate, steps, noise, facts.default_batch)
        if advice is None and scaled.strategy != SCRIPT:
            unknown = LINE_MISSES if misses else why_no_advice(steps, noise)
    return PlanWorth(
        step_s=step_s,
        step_parts=tuple(parts),
        # Most samples a second is not what a plan with an objective was chosen for.
        runner_up=_find_runner_up(stored, evidence) if stored.objective is None else None,
        variations=tuple(vary(stored.plan, evidence, facts, steps)),
        baselines=tuple(
            _find_baselines(stored, evidence, facts, node.cpu.usable_cores if node else None)
        ),
        batches=advice,
        batches_unknown=unknown,
        tuning_s=evidence.elapsed_s,
        num_trials=len(evidence.trials),
    )


def _find_runner_up(stored: StoredPlan, evidence: Evidence) -> RunnerUp | None:
    """Give the plan that was raced against at last; where there is none, the next fastest."""
    raced = next((one for one in stored.comparisons if one.name == "runner_up"), None)
    if raced is not None:
        return RunnerUp(plan=raced.plan, lead=raced.speedup, in_turns=True)
    others = [
        result
        for result in evidence.latest()
        if result.role.is_for_choice
        if result.plan != stored.plan and result.outcome is Outcome.OK
    ]
    if not others:
        return None
    plan = max(others, key=lambda one: _rate_of(one).median).plan
    if (lead := evidence.speed_ratio(plan, stored.plan)) is None:
        return None
    in_turns = evidence.raced_ratio(plan, stored.plan) is not None
    return RunnerUp(plan=plan, lead=lead, in_turns=in_turns)


def _rate_of(result: TrialResult) -> Interval:
    rate = result.throughput_samples_per_s()
    assert rate is not None  # evidence has no others
    return rate


def _find_baselines(
    stored: StoredPlan, evidence: Evidence, facts: CaseFacts | None, cores: int | None
) -> Iterator[KnownBaseline]:
    """Give what the plan was raced against at last, and what only earlier trials show."""
    raced = {_RACED[one.name]: one for one in stored.comparisons if one.name in _RACED}
    tried = _find_tried_baselines(stored, evidence, facts, cores)
    best = stored.throughput_samples_per_s.median
    for name in _RACED.values():
        one, known = raced.get(name), tried.get(name)
        if one is not None and (name != OWN_BATCH or _is_same_but_batch(one.plan, stored.plan)):
            plan, speedup, in_turns = one.plan, one.speedup, True
            rate = speedup.reciprocal(best)
        elif known is not None and (faster := evidence.speed_ratio(known.plan, stored.plan)):
            plan, speedup, rate = known.plan, faster, _rate_of(known)
            in_turns = evidence.raced_ratio(plan, stored.plan) is not None
        else:
            continue
        if plan != stored.plan:
            is_script = plan.strategy == SCRIPT
            gain = speedup.median
            until_paid_s = None if gain <= 1 else evidence.elapsed_s / (1 - 1 / gain)
            epoch_s = None if facts is None or is_script else facts.train_samples / rate.median
            yield KnownBaseline(
                name=AS_IT_IS if is_script and name == DEFAULTS else name,
                plan=plan,
                throughput_samples_per_s=rate,
                speedup=speedup,
                in_turns=in_turns,
                epochs_until_paid=until_paid_s and epoch_s and until_paid_s / epoch_s,
                training_until_paid_s=until_paid_s,
            )


def _find_tried_baselines(
    stored: StoredPlan, evidence: Evidence, facts: CaseFacts | None, cores: int | None
) -> dict[str, TrialResult]:
    """Find baselines among all trials; they are known by their settings."""
    found: dict[str, TrialResult] = {}
    own_batch = facts.default_batch if facts else stored.baseline and stored.baseline.node_batch
    for result in evidence.latest():
        if result.plan.node_batch != own_batch:
            continue
        if (name := _name_baseline(result.plan, cores)) is not None:
            found[name] = result
        elif _is_same_but_batch(result.plan, stored.plan):
            found[OWN_BATCH] = result
    return found


def _is_same_but_batch(one: Plan, other: Plan) -> bool:
    return _without_batch(one) == _without_batch(other)


def _without_batch(plan: Plan) -> dict[str, Any]:
    settings = {**codec.to_builtins(plan), "node_batch": None}
    is_users = plan.strategy == SCRIPT  # whose own batch is an option
    kept = {k: v for k, v in plan.options.items() if not (is_users and k == BATCH)}
    return {**settings, "options": kept}


def _name_baseline(plan: Plan, cores: int | None) -> str | None:
    """Name a plan without any setting of its own: on one core, or on all of them or one GPU."""
    plain = Plan(
        strategy=plan.strategy,
        node_batch=plan.node_batch,
        threads_per_process=plan.threads_per_process,
        devices=plan.devices,
    )
    if plan != plain:
        return None
    if plan.devices == ("cpu",) and plan.threads == 1:
        return ONE_CORE
    return DEFAULTS if plan.devices != ("cpu",) or plan.threads == cores else None
